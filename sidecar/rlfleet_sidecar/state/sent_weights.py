"""When weights that a trainer sends may be taken, and what they are called. Pure.

Such a version has a name that no checkpoint has, because nothing was compared with one:
nobody takes it for the directory of the same name, and no worker's is compared with
another's unless their trainer named both.
"""

import re

from rlfleet_contract.paths import VERSION_PATTERN
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from rlfleet_contract.worker.target import Target
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.state.stage_machine import State

PREFIX = "sent-"
_WHOLE = frozenset({Stage.OPEN, Stage.CLOSED, Stage.PAUSED, Stage.PROVED})


def version_of(named: str | None, fresh: str) -> str:
    """Return what the weights are called here; ``fresh`` if their trainer gives no name."""
    version = PREFIX + (named or fresh)
    if re.fullmatch(VERSION_PATTERN, version) is None:
        raise SidecarError(
            Code.INVALID_REQUEST, f"weight_version: {version:.140} is not one name: letters, . _ -"
        )
    return version


def label_of(version: str | None) -> str | None:
    """Return what trainers call a version that was proved."""
    return version if version is None else version.removeprefix(PREFIX)


def demand_groupable(state: State) -> None:
    """See that a group may be formed: the engine is whole and in no update."""
    if state.stage is Stage.DOUBT:
        raise _in_doubt()
    if state.stage not in _WHOLE:
        raise SidecarError(
            Code.WRONG_STAGE, f"this worker is {state.stage}: form the group before an update"
        )


def demand_startable(state: State, group: str | None) -> None:
    """See that an update may begin: paused, and with a group of this boot of the engine."""
    if state.stage is Stage.DOUBT:
        raise _in_doubt()
    if state.stage is not Stage.PAUSED:
        raise SidecarError(
            Code.WRONG_STAGE, f"this worker is {state.stage}: send pause before start_weight_update"
        )
    demand_grouped(state, group)


def demand_grouped(state: State, group: str | None) -> None:
    """See that this start of the engine is in a group."""
    if group is None or group != state.boot:
        raise SidecarError(
            Code.WRONG_STAGE,
            "this start of the engine is in no group: send init_weight_transfer_engine first",
        )


def demand_started(state: State, *, is_session: bool) -> None:
    """See that an update has begun that this call belongs to."""
    if state.stage is Stage.DOUBT:
        raise _in_doubt()
    if state.stage is not Stage.LOADING or not is_session:
        raise SidecarError(
            Code.WRONG_STAGE, f"this worker is {state.stage}: send start_weight_update first"
        )


def demand_sent(parts: int) -> None:
    """See that something has arrived: else a new name would stand for the old weights."""
    if not parts:
        raise SidecarError(
            Code.WRONG_STAGE, "nothing has arrived since the start: send update_weights first"
        )


def demand_unowned(target: Target | None) -> None:
    """Reject a trainer while the fleet is asked for a version: its work would be undone."""
    if target is not None:
        owner = target.owner or "the spec or the fleet API"
        raise SidecarError(
            Code.WRONG_STAGE,
            f"the fleet is asked for {target.version} by {owner}, and the operator leads this"
            " worker back to it: take weightVersion out of the spec, or ask for versions there",
        )


def _in_doubt() -> SidecarError:
    return SidecarError(
        Code.ENGINE_IN_DOUBT,
        "an update did not end well and nobody knows what the engine holds: load a version from"
        " its directory, or let the engine restart",
    )
