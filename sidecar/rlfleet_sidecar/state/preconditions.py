"""May this command be carried out here, is it done already, or why not. Pure.

A repeat of a command whose effect is there already is done, not refused: callers repeat
when an answer was lost. It must stay true that nothing leads an engine in doubt back
to traffic but a reload and its proof.
"""

from enum import Enum

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.state.stage_machine import State, steps_to


class CommandVerdict(Enum):
    """What is left to do of a command that is not refused."""

    DO = "do"
    DONE = "done"


_STAGES: dict[Verb, frozenset[Stage]] = {
    Verb.PAUSE: frozenset({Stage.OPEN, Stage.CLOSED, Stage.PAUSED, Stage.PROVED, Stage.DOUBT}),
    Verb.FLUSH: frozenset({Stage.PAUSED, Stage.LOADED, Stage.DOUBT}),
    Verb.RELOAD: frozenset({Stage.PAUSED, Stage.LOADED, Stage.DOUBT}),
    Verb.VERIFY: frozenset({Stage.CLOSED, Stage.PAUSED, Stage.LOADED}),
    Verb.RESUME: frozenset({Stage.PROVED, Stage.PAUSED}),
}
"""Where a verb has something to do."""


def judge(state: State, verb: Verb, version: str) -> CommandVerdict:
    """Tell whether there is something to do; raises why not."""
    if verb is Verb.PREPARE:
        return CommandVerdict.DO
    if _is_done(state, verb, version):
        return CommandVerdict.DONE
    if state.stage is Stage.DOWN:
        raise SidecarError(
            Code.ENGINE_UNREACHABLE, "the engine does not answer; send it again when it does"
        )
    if state.stage not in _STAGES[verb]:
        raise _wrong_stage(state, verb)
    if verb is Verb.RELOAD and state.prepared != version:
        raise not_prepared(state, version)
    if verb in {Verb.VERIFY, Verb.RESUME}:
        _demand_version(state, verb, version)
    return CommandVerdict.DO


def judge_update(state: State, version: str, through: Verb = Verb.RESUME) -> tuple[Verb, ...]:
    """Tell the steps that the sequence takes from here through one of them; raises why not.

    What would be refused further on is refused at once, before anything is paused.
    """
    if state.stage is Stage.LOADING:
        # Of a transfer, between two calls: whoever led it by this would keep it for ever.
        raise SidecarError(
            Code.WRONG_STAGE, "a trainer sends weights to this worker: send it when that has ended"
        )
    if state.stage is Stage.DOWN:
        raise SidecarError(
            Code.ENGINE_UNREACHABLE, "the engine does not answer; send it again when it does"
        )
    if Verb.RELOAD in steps_to(state, version) and state.prepared != version:
        raise not_prepared(state, version)
    return steps_to(state, version, through)


def not_prepared(state: State, version: str) -> SidecarError:
    """Make the error of a reload before its prepare."""
    return SidecarError(
        Code.NOT_PREPARED,
        f"version {version} is not prepared here (prepared: {state.prepared or 'none'});"
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
            "a reload or its proof failed and nobody knows what the engine holds: load and"
            " verify a good version, or let the engine restart",
        )
    wanted = ", ".join(sorted(_STAGES[verb]))
    return SidecarError(
        Code.WRONG_STAGE, f"{verb} has something to do in {wanted}; this worker is {state.stage}"
    )


def _demand_version(state: State, verb: Verb, version: str) -> None:
    held = state.installed if verb is Verb.VERIFY else state.proved
    if held != version:
        word = "installed" if verb is Verb.VERIFY else "proved"
        raise SidecarError(
            Code.WRONG_STAGE, f"{verb} names {version}; {word} here is {held or 'nothing'}"
        )
