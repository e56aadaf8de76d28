"""The step for an adapter, and whether it is allowed now. Pure.

Adapters are no part of a proof and never change a worker's stage. It must stay true that
during a change of weights only the caller of that change loads adapters, before its reload
or after its proof.
"""

import re
from collections.abc import Iterable
from enum import StrEnum

from rlfleet_contract.paths import ADAPTER_PATTERN
from rlfleet_contract.worker.loaded_lora import AdapterReport
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.state.preconditions import demand_up

_AT_REST = frozenset({Stage.OPEN, Stage.CLOSED})
_OWN = frozenset({Stage.PAUSED, Stage.PROVED})
"""Stages of a change with proved weights, in which its caller may load an adapter."""


class LoRAStep(StrEnum):
    """What a command must do at the engine."""

    NOTHING = "Nothing"
    LOAD = "Load"
    REPLACE = "Replace"
    UNLOAD = "Unload"


def step_to(wanted: str | None, served: str | None) -> LoRAStep:
    """Return the step from the directory served under a name to the wanted one."""
    if wanted == served:
        return LoRAStep.NOTHING
    if wanted is None:
        return LoRAStep.UNLOAD
    return LoRAStep.LOAD if served is None else LoRAStep.REPLACE


def demand_name(name: str, model: str, *, is_declared: bool) -> None:
    """Raise for an invalid name, or the model's name in the fleet's spec."""
    if name == model:
        if is_declared:
            raise SidecarError(
                Code.ADAPTER_FAILED,
                f"{name} is the base model's name, which only a trainer may use; give this adapter"
                " another name",
            )
    elif not re.fullmatch(ADAPTER_PATTERN, name):
        raise SidecarError(
            Code.INVALID_REQUEST,
            f"name: {name:.128} is not valid; use {model}, or at most 128 letters, digits and"
            " . _ @ - that begin and end with a letter or digit",
        )


def demand_bare(model: str, known: Iterable[AdapterReport]) -> None:
    """Raise if an adapter has the model's name, because it would hide a trainer's weights."""
    if any(adapter.name == model and adapter.version is not None for adapter in known):
        raise SidecarError(
            Code.INVALID_REQUEST,
            f"an adapter has the model's name {model} and would change the new weights' answers;"
            f' send /v1/unload_lora_adapter {{"lora_name": "{model}"}} first',
        )


def demand_inherited(digest: str, inherited: str | None) -> None:
    """Raise if the adapter has other bytes than other workers have loaded from its directory."""
    if inherited is not None and digest != inherited:
        raise SidecarError(
            Code.DIGEST_MISMATCH,
            f"the adapter has digest {digest[:12]}, expected {inherited[:12]}; have"
            " the trainer load its next one here too",
        )


def demand_rest(stage: Stage, *, is_leader: bool = False) -> None:
    """Raise unless the engine is up and its weights are not being changed by another caller."""
    demand_up(stage)
    if stage is Stage.DOUBT:
        raise SidecarError(
            Code.ENGINE_IN_DOUBT,
            "the engine is in doubt; load a good version first",
        )
    if stage not in _AT_REST and not (is_leader and stage in _OWN):
        raise SidecarError(
            Code.BUSY, f"this worker's weights are being changed (stage {stage}); retry after that"
        )


def demand_undeclared(known: Iterable[AdapterReport]) -> None:
    """Raise if the fleet's spec has adapters, because the operator would undo a trainer's."""
    owned = [adapter.name for adapter in known if adapter.is_declared]
    if owned:
        raise SidecarError(
            Code.ADAPTERS_OWNED,
            f"the fleet's spec owns its adapters ({', '.join(owned[:3])}); change spec.adapters, or"
            " remove them there first",
        )
