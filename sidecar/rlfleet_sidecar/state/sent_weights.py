"""The stages of a transfer, and the names of its versions. Pure.

Such a version has a name that no checkpoint can have, because it was not compared with one.
Workers compare such versions with each other only if their trainer named them.
"""

import re

from rlfleet_contract.paths import VERSION_PATTERN
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage, Target
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.state.stage_machine import State

PREFIX = "sent-"
_WHOLE = frozenset({Stage.OPEN, Stage.CLOSED, Stage.PAUSED, Stage.PROVED})


def version_of(named: str | None, fresh: str) -> str:
    """Return the version for a trainer's name, or for ``fresh`` without one."""
    version = PREFIX + (named or fresh)
    if re.fullmatch(VERSION_PATTERN, version) is None:
        raise SidecarError(
            Code.INVALID_REQUEST,
            f"weight_version: {version:.140} is not a name; use letters, digits and . _ -",
        )
    return version


def label_of(version: str | None) -> str | None:
    """Return a version by the name that its trainer gave."""
    return version if version is None else version.removeprefix(PREFIX)


def demand_groupable(state: State) -> None:
    """Raise unless a group may be formed: no update is under way or has failed."""
    if state.stage is Stage.DOUBT:
        raise _in_doubt()
    if state.stage not in _WHOLE:
        raise SidecarError(
            Code.WRONG_STAGE,
            f"cannot form a group in stage {state.stage} (an update is under way); end it first",
        )


def demand_startable(state: State, group: str | None) -> None:
    """Raise unless an update may begin: in Paused, with a group of this boot."""
    if state.stage is Stage.DOUBT:
        raise _in_doubt()
    if state.stage is not Stage.PAUSED:
        raise SidecarError(
            Code.WRONG_STAGE,
            f"cannot begin an update in stage {state.stage} (allowed: Paused); send pause first",
        )
    demand_grouped(state, group)


def demand_grouped(state: State, group: str | None) -> None:
    """Raise unless this boot is in a group."""
    if group is None or group != state.boot:
        raise SidecarError(
            Code.WRONG_STAGE,
            "the engine has no transfer group since its start; send init_weight_transfer_engine"
            " first",
        )


def demand_started(state: State, *, is_session: bool) -> None:
    """Raise unless an update has begun to which this call belongs."""
    if state.stage is Stage.DOUBT:
        raise _in_doubt()
    if state.stage is not Stage.LOADING or not is_session:
        raise SidecarError(
            Code.WRONG_STAGE,
            f"no weight update is under way (stage {state.stage}); send start_weight_update first",
        )


def demand_sent(parts: int) -> None:
    """Raise if no weights have arrived: else a new name would refer to old weights."""
    if not parts:
        raise SidecarError(
            Code.WRONG_STAGE, "no weights arrived since start_weight_update; send update_weights"
        )


def demand_unowned(target: Target | None) -> None:
    """Raise while the fleet has a target: the operator would undo a trainer's change."""
    if target is not None:
        owner = target.owner or "the spec or the fleet API"
        raise SidecarError(
            Code.WRONG_STAGE,
            f"the fleet's target is {target.version} (set by {owner}); remove it, or set the next"
            " version there",
        )


def _in_doubt() -> SidecarError:
    return SidecarError(
        Code.ENGINE_IN_DOUBT,
        "an update failed and the engine's weights are unknown; load a version from its"
        " directory, or restart the engine",
    )
