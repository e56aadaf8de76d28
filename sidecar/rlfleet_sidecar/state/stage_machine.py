"""The change of weights as a table: stages, events, and nothing that acts.

One worker has one State. An event is something that has happened, or that is about to
happen and is written down first, so that a sidecar which dies in the midst of it finds
a stage that is never better than the truth. Three rules hold for whoever edits this:

- Only PROVED leads to a served version, and only out of a stage in which the engine
  holds one known version. A reload that has begun voids what was proved before.
- DOUBT has three ways out: a reload that ends well and is proved, and a new boot.
- An illegal event is an error and changes nothing.

A new boot voids everything. An engine that was merely silent comes back to where it
was (BACK_TO); so does a sidecar that was restarted, because it begins as if it had lost
the engine. LOADING and LOADED come back as DOUBT: nobody saw how they went on.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from rlfleet_contract.engine.gate import Fallback
from rlfleet_contract.paths import BASE_VERSION
from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.proof import Proof
from rlfleet_contract.worker.report import Stage


class StageEvent(StrEnum):
    """What happens to a worker."""

    BOOTED = "Booted"
    """A start of the engine answers that was not seen before."""
    LOST = "Lost"
    """The engine does not answer."""
    BACK = "Back"
    """The same start of the engine answers again."""
    PAUSING = "Pausing"
    """The gate is about to close and the engine to pause."""
    OPENED = "Opened"
    """The engine runs and the gate is open."""
    RELEASED = "Released"
    """The engine runs on behind the closed gate, with what it held before the pause."""
    RELOADING = "Reloading"
    """The reload is about to begin."""
    RELOADED = "Reloaded"
    RELOAD_FAILED = "ReloadFailed"
    PROVED = "Proved"
    PROOF_FAILED = "ProofFailed"


AHEAD = frozenset({StageEvent.PAUSING, StageEvent.RELOADING})
"""What is written down before it is done, or not done; everything else has been seen."""

_ANYWHERE = {StageEvent.BOOTED: Stage.CLOSED, StageEvent.LOST: Stage.DOWN}

TABLE: dict[Stage, dict[StageEvent, Stage]] = {
    Stage.DOWN: _ANYWHERE,
    Stage.CLOSED: _ANYWHERE
    | {
        StageEvent.PAUSING: Stage.PAUSED,
        StageEvent.PROVED: Stage.PROVED,
        StageEvent.PROOF_FAILED: Stage.DOUBT,
    },
    Stage.OPEN: _ANYWHERE | {StageEvent.PAUSING: Stage.PAUSED},
    Stage.PAUSED: _ANYWHERE
    | {
        StageEvent.PAUSING: Stage.PAUSED,
        StageEvent.OPENED: Stage.OPEN,
        StageEvent.RELEASED: Stage.CLOSED,
        StageEvent.RELOADING: Stage.LOADING,
        StageEvent.PROVED: Stage.PROVED,
        StageEvent.PROOF_FAILED: Stage.DOUBT,
    },
    Stage.LOADING: _ANYWHERE
    | {StageEvent.RELOADED: Stage.LOADED, StageEvent.RELOAD_FAILED: Stage.DOUBT},
    Stage.LOADED: _ANYWHERE
    | {
        StageEvent.RELOADING: Stage.LOADING,
        StageEvent.PROVED: Stage.PROVED,
        StageEvent.PROOF_FAILED: Stage.DOUBT,
    },
    Stage.PROVED: _ANYWHERE | {StageEvent.OPENED: Stage.OPEN, StageEvent.PAUSING: Stage.PAUSED},
    Stage.DOUBT: _ANYWHERE | {StageEvent.PAUSING: Stage.DOUBT, StageEvent.RELOADING: Stage.LOADING},
}

BACK_TO: dict[Stage, Stage] = {
    Stage.CLOSED: Stage.CLOSED,
    Stage.OPEN: Stage.OPEN,
    Stage.PAUSED: Stage.PAUSED,
    Stage.LOADING: Stage.DOUBT,
    Stage.LOADED: Stage.DOUBT,
    Stage.PROVED: Stage.PROVED,
    Stage.DOUBT: Stage.DOUBT,
}
"""Where a worker stands that was lost in a stage and came back in the same boot."""

_OUT_OF_SERVICE = frozenset({Stage.DOWN, Stage.CLOSED, Stage.DOUBT})


@dataclass(frozen=True, slots=True)
class State:
    """Where a worker stands and what its engine holds."""

    stage: Stage = Stage.DOWN
    boot: str | None = None
    """The engine's boot that all of this is about."""
    installed: str | None = None
    proved: str | None = None
    proof: Proof | None = None
    prepared: str | None = None
    serving: bool = False
    """Takes traffic: it is open, or changes from one proved version to the next."""
    lost_in: Stage | None = None
    """While DOWN: the stage in which the engine was lost."""


class IllegalEventError(Exception):
    """The event cannot happen in this state; the state is as it was."""


def step(
    state: State,
    event: StageEvent,
    *,
    boot: str | None = None,
    version: str | None = None,
    proof: Proof | None = None,
) -> State:
    """Tell the state after the event (tests/property/test_swap.py holds its invariants).

    ``version`` is what was reloaded; of a new boot, what it was told since that it computes with.
    """
    target = _target(state, event)
    match event:
        case StageEvent.BOOTED:
            # A start that was told of another version holds no boot weights any more.
            installed = BASE_VERSION if version in {None, BASE_VERSION} else None
            after = State(boot=boot, installed=installed, prepared=state.prepared)
        case StageEvent.LOST:
            after = state if state.stage is Stage.DOWN else replace(state, lost_in=state.stage)
        case StageEvent.BACK:
            after = replace(state, lost_in=None)
        case StageEvent.RELOADED:
            after = replace(state, installed=version)
        case StageEvent.RELOAD_FAILED:
            after = replace(state, installed=None)
        case StageEvent.PROVED:
            after = replace(state, proved=state.installed, proof=proof)
        case _:
            after = state
    return _settled(after, target)


def _target(state: State, event: StageEvent) -> Stage:
    if event is StageEvent.BACK and state.stage is Stage.DOWN and state.lost_in is not None:
        return BACK_TO.get(state.lost_in, Stage.DOWN)
    target = TABLE[state.stage].get(event)
    if target is None:
        raise IllegalEventError(f"{event} cannot happen in {state.stage}")
    if event is StageEvent.OPENED and state.proved is None:
        raise IllegalEventError(f"{event} cannot happen in {state.stage} with nothing proved")
    if event is StageEvent.PROVED and state.installed is None:
        raise IllegalEventError(f"{event} cannot happen with nobody knowing what is installed")
    if event is StageEvent.RELEASED and state.proved is not None:
        raise IllegalEventError(f"{event} would forget that {state.proved} is proved")
    return target


def _settled(state: State, stage: Stage) -> State:
    """Enter the stage with what must be true in it."""
    serving = stage is Stage.OPEN or (state.serving and stage not in _OUT_OF_SERVICE)
    if stage in {Stage.LOADING, Stage.LOADED, Stage.DOUBT}:
        state = replace(state, proved=None, proof=None)
    return replace(state, stage=stage, serving=serving)


def observe(state: State, boot: str | None) -> StageEvent | None:
    """Tell what it means that this boot answers, or that none does."""
    if boot is None:
        return None if state.stage is Stage.DOWN else StageEvent.LOST
    if boot != state.boot:
        return StageEvent.BOOTED
    return StageEvent.BACK if state.stage is Stage.DOWN else None


class Rescue(StrEnum):
    """What a sidecar does of itself, mostly when nobody leads the change that it is in."""

    ALIGN = "Align"
    """Bring gate and engine where the stage says they are: somebody else has moved them."""

    UNDO = "Undo"
    """Run on with what the engine held before the pause."""
    OPEN = "Open"
    """Serve what is proved."""
    END = "End"
    """End the engine: what it holds is not proved, and it comes back on the boot weights."""
    TURN_AWAY = "TurnAway"
    """Have nobody wait for it any longer: it has been in doubt for too long."""


def rescue(stage: Stage) -> Rescue | None:
    """Tell the way out of a change whose driver is gone."""
    match stage:
        case Stage.PAUSED:
            return Rescue.UNDO
        case Stage.PROVED:
            return Rescue.OPEN
        case Stage.LOADING | Stage.LOADED | Stage.DOUBT:
            # Loading without a command under way: a trainer sends its weights, call by call.
            return Rescue.END
        case _:
            return None


def has_no_pause(stage: Stage, *, is_open: bool) -> bool:
    """Tell whether a change that is on record keeps nobody waiting, though nothing ended it.

    A gate is closed first and opened last: one that is open shows that its pause had not begun
    when the sidecar died, or that the change was over. To close it would make clients wait.
    """
    return is_open and rescue(stage) in {Rescue.UNDO, Rescue.OPEN}


def fallback(state: State) -> Fallback:
    """Tell what the gate does of itself when this sidecar is gone, by what is on record.

    Open alone leads to what a sidecar that comes back finds written: served before the change,
    and proved now. A late joiner's adapters, too, come back by the sidecar alone.
    """
    is_known = state.stage in {Stage.PAUSED, Stage.PROVED} and state.proved is not None
    return "open" if is_known and state.serving else "refuse"


def steps_to(state: State, version: str, through: Verb = Verb.RESUME) -> tuple[Verb, ...]:
    """Tell the steps from here to serving ``version``, up to and including ``through``.

    None if it is served already, or if the worker stands further on its way to it.
    Whoever is led only as far as the pause flushes, too: what can still be undone has to
    fail before anybody of those that are led together has begun to load.
    """
    order = tuple(Verb)
    way = _way(state, version)
    last = order.index(Verb.FLUSH if through is Verb.PAUSE else through)
    return tuple(verb for verb in way if order.index(verb) <= last)


def _way(state: State, version: str) -> tuple[Verb, ...]:
    if state.proved == version and state.stage is Stage.OPEN:
        return ()
    if state.proved == version and state.stage in {Stage.PROVED, Stage.PAUSED}:
        return (Verb.RESUME,)
    if state.installed == version and state.stage in {Stage.CLOSED, Stage.LOADED}:
        return (Verb.VERIFY, Verb.RESUME)
    return (Verb.PAUSE, Verb.FLUSH, Verb.RELOAD, Verb.VERIFY, Verb.RESUME)
