"""What has to be done about an adapter, and whether it may be done now. Pure.

An adapter is no part of what is proved of a worker, and never moves it in the table of
stages. It must stay true that none is touched within a change of weights.
"""

from collections.abc import Iterable
from enum import StrEnum

from rlfleet_contract.loaded import AdapterReport
from rlfleet_contract.models import Stage
from rlfleet_contract.problems import Code
from rlfleet_sidecar.errors import SidecarError

_AT_REST = frozenset({Stage.OPEN, Stage.CLOSED})


class Step(StrEnum):
    """What has to be done."""

    NOTHING = "Nothing"
    LOAD = "Load"
    REPLACE = "Replace"
    UNLOAD = "Unload"


def step_to(wanted: str | None, served: str | None) -> Step:
    """Tell the step from the directory that is served under a name to the wanted one."""
    if wanted == served:
        return Step.NOTHING
    if wanted is None:
        return Step.UNLOAD
    return Step.LOAD if served is None else Step.REPLACE


def demand_rest(stage: Stage) -> None:
    """See that there is an engine, and that no change of weights is under way."""
    if stage is Stage.DOWN:
        raise SidecarError(
            Code.ENGINE_UNREACHABLE, "the engine does not answer; send it again when it does"
        )
    if stage is Stage.DOUBT:
        raise SidecarError(
            Code.ENGINE_IN_DOUBT,
            "the engine is in doubt: bring it to a proved version first",
        )
    if stage not in _AT_REST:
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
