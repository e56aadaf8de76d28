"""What has to be done about an adapter, and whether it may be done now. Pure.

An adapter is no part of what is proved of a worker, and never moves it in the table of
stages. It must stay true that none is touched within a change of weights, but by whoever
leads that change, before it has loaded anything or after that was proved.
"""

import re
from collections.abc import Iterable
from enum import StrEnum

from rlfleet_contract.paths import ADAPTER_PATTERN
from rlfleet_contract.worker.loaded_lora import AdapterReport
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.errors import SidecarError

_AT_REST = frozenset({Stage.OPEN, Stage.CLOSED})
_OWN = frozenset({Stage.PAUSED, Stage.PROVED})
"""Where whoever leads a change may load an adapter: the engine holds proved weights."""


class LoRAStep(StrEnum):
    """What has to be done."""

    NOTHING = "Nothing"
    LOAD = "Load"
    REPLACE = "Replace"
    UNLOAD = "Unload"


def step_to(wanted: str | None, served: str | None) -> LoRAStep:
    """Tell the step from the directory that is served under a name to the wanted one."""
    if wanted == served:
        return LoRAStep.NOTHING
    if wanted is None:
        return LoRAStep.UNLOAD
    return LoRAStep.LOAD if served is None else LoRAStep.REPLACE


def demand_name(name: str, model: str, *, is_declared: bool) -> None:
    """See that a name is an adapter's own, or the model's, which a trainer alone may lead."""
    if name == model:
        if is_declared:
            raise SidecarError(
                Code.ADAPTER_FAILED,
                f"{name} is the base model's name, under which a trainer alone loads an adapter:"
                " give this one a name of its own",
            )
    elif not re.fullmatch(ADAPTER_PATTERN, name):
        raise SidecarError(
            Code.INVALID_REQUEST,
            f"name: {name:.128} is neither the model's ({model}) nor letters, digits, '.', '_'"
            " and '-', beginning and ending with a letter or digit, at most 128",
        )


def demand_bare(model: str, known: Iterable[AdapterReport]) -> None:
    """See that weights which a trainer loads will answer: nothing else has the model's name."""
    if any(adapter.name == model and adapter.version is not None for adapter in known):
        raise SidecarError(
            Code.INVALID_REQUEST,
            f"an adapter answers under the model's name, {model}, and would answer on top of"
            f' these weights: send /v1/unload_lora_adapter {{"lora_name": "{model}"}} before',
        )


def demand_inherited(digest: str, inherited: str | None) -> None:
    """See that what lies there still is what other workers have loaded from there."""
    if inherited is not None and digest != inherited:
        raise SidecarError(
            Code.DIGEST_MISMATCH,
            f"other bytes lie there than what other workers serve ({inherited[:12]}): have the"
            " trainer load its next one here too",
        )


def demand_rest(stage: Stage, *, is_leader: bool = False) -> None:
    """See that there is an engine, and that nobody else is changing its weights.

    Whoever has paused the worker may load an adapter in the place of weights.
    """
    if stage is Stage.DOWN:
        raise SidecarError(
            Code.ENGINE_UNREACHABLE, "the engine does not answer; send it again when it does"
        )
    if stage is Stage.DOUBT:
        raise SidecarError(
            Code.ENGINE_IN_DOUBT,
            "the engine is in doubt: bring it to a proved version first",
        )
    if stage not in _AT_REST and not (is_leader and stage in _OWN):
        raise SidecarError(
            Code.BUSY, f"this worker is {stage}: its weights are being changed; send it again after"
        )


def demand_undeclared(known: Iterable[AdapterReport]) -> None:
    """See that no adapter here belongs to the fleet's spec: a trainer's would not stay."""
    owned = [adapter.name for adapter in known if adapter.is_declared]
    if owned:
        raise SidecarError(
            Code.ADAPTERS_OWNED,
            f"the fleet's spec owns the adapters here ({', '.join(owned[:3])}): change"
            " spec.adapters, or take them out of it and load them by this route",
        )
