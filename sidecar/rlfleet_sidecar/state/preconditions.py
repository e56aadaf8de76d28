"""Is a command allowed in this state, is it already done, or why not? Pure.

A repeat after its effect counts as done and is not rejected: callers repeat after a lost
answer. It must stay true that only a reload and its proof lead an engine in doubt back to
traffic.
"""

from enum import Enum

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.state.stage_machine import State, steps_to


class CommandVerdict(Enum):
    """Whether an allowed command still has an effect."""

    DO = "do"
    DONE = "done"


_STAGES: dict[Verb, frozenset[Stage]] = {
    Verb.PAUSE: frozenset({Stage.OPEN, Stage.CLOSED, Stage.PAUSED, Stage.PROVED, Stage.DOUBT}),
    Verb.FLUSH: frozenset({Stage.PAUSED, Stage.LOADED, Stage.DOUBT}),
    Verb.RELOAD: frozenset({Stage.PAUSED, Stage.LOADED, Stage.DOUBT}),
    Verb.VERIFY: frozenset({Stage.CLOSED, Stage.PAUSED, Stage.LOADED}),
    Verb.RESUME: frozenset({Stage.PROVED, Stage.PAUSED}),
}
"""The stages in which a verb is allowed."""


def demand_up(stage: Stage) -> None:
    """Raise unless the engine is up."""
    if stage is Stage.DOWN:
        raise SidecarError(
            Code.ENGINE_UNREACHABLE, "the engine does not answer; retry when it is up"
        )


def judge(state: State, verb: Verb, version: str) -> CommandVerdict:
    """Return whether a command still has an effect; raises if it is not allowed."""
    if verb is Verb.PREPARE:
        return CommandVerdict.DO
    if _is_done(state, verb, version):
        return CommandVerdict.DONE
    demand_up(state.stage)
    if state.stage not in _STAGES[verb]:
        raise _wrong_stage(state, verb)
    if verb is Verb.RELOAD and state.prepared != version:
        raise not_prepared(state, version)
    if verb in {Verb.VERIFY, Verb.RESUME}:
        _demand_version(state, verb, version)
    return CommandVerdict.DO


def judge_update(state: State, version: str, through: Verb = Verb.RESUME) -> tuple[Verb, ...]:
    """Return the steps from here through one of them; raises if one is not allowed.

    So a later step's rejection comes before the pause.
    """
    if state.stage is Stage.LOADING:
        # Between two calls of a transfer: a driver's heartbeats would keep it for ever.
        raise SidecarError(
            Code.WRONG_STAGE, "a trainer is sending weights to this worker; retry after that"
        )
    demand_up(state.stage)
    if Verb.RELOAD in steps_to(state, version) and state.prepared != version:
        raise not_prepared(state, version)
    return steps_to(state, version, through)


def not_prepared(state: State, version: str) -> SidecarError:
    """Return the error for a reload before its prepare."""
    return SidecarError(
        Code.NOT_PREPARED,
        f"version {version} is not prepared (prepared: {state.prepared or 'none'});"
        " send prepare first",
    )


def _is_done(state: State, verb: Verb, version: str) -> bool:
    served = state.proved == version and state.stage in {Stage.PROVED, Stage.OPEN}
    match verb:
        case Verb.PAUSE:
            return state.stage is Stage.LOADED
        case Verb.RELOAD:
            return served or (state.stage is Stage.LOADED and state.installed == version)
        case Verb.VERIFY:
            return served
        case Verb.RESUME:
            return served and state.stage is Stage.OPEN
        case _:
            return False


def _wrong_stage(state: State, verb: Verb) -> SidecarError:
    if state.stage is Stage.DOUBT:
        return SidecarError(
            Code.ENGINE_IN_DOUBT,
            "a reload or its proof failed and the engine's weights are unknown; load and verify a"
            " good version, or restart the engine",
        )
    allowed = ", ".join(sorted(_STAGES[verb]))
    return SidecarError(
        Code.WRONG_STAGE, f"cannot {verb} in stage {state.stage} (allowed: {allowed})"
    )


def _demand_version(state: State, verb: Verb, version: str) -> None:
    found = state.installed if verb is Verb.VERIFY else state.proved
    if found != version:
        word = "installed" if verb is Verb.VERIFY else "proved"
        raise SidecarError(
            Code.WRONG_STAGE, f"cannot {verb} version {version} ({word}: {found or 'none'})"
        )
