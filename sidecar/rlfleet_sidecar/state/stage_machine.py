"""The change of weights as a table of stages and events. Pure.

One worker has one State. An event has happened, or is about to happen and is written first;
so after a crash in between, the recorded stage is never better than the truth. Rules for
edits:

- Only PROVED leads to a served version, and only from a stage with one known version in the
  engine. The begin of a reload voids the earlier proof.
- DOUBT ends by a reload with its proof, or by a new boot.
- An illegal event is an error and changes nothing.

A new boot voids everything. After a mere silence of the engine, or a restart of the sidecar,
which begins as if the engine were lost, the worker returns to a stage by BACK_TO. LOADING and
LOADED return as DOUBT, because the end of the reload was not observed.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from rlfleet_contract.engine.gate import Fallback
from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.proof import Proof
from rlfleet_contract.worker.report import Stage


class StageEvent(StrEnum):
    """What happens to a worker."""

    BOOTED = "Booted"
    """The engine answers with a new boot."""
    LOST = "Lost"
    """The engine does not answer."""
    BACK = "Back"
    """The engine answers again with the same boot."""
    PAUSING = "Pausing"
    """The gate is about to close and the engine to pause."""
    OPENED = "Opened"
    """The engine runs and the gate is open."""
    RELEASED = "Released"
    """The engine runs behind the closed gate, with the weights from before the pause."""
    RELOADING = "Reloading"
    """The reload is about to begin."""
    RELOADED = "Reloaded"
    RELOAD_FAILED = "ReloadFailed"
    PROVED = "Proved"
    PROOF_FAILED = "ProofFailed"


AHEAD = frozenset({StageEvent.PAUSING, StageEvent.RELOADING})
"""Events that must be written before their act; all others have already happened."""

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
"""The stage after the engine was lost in one and came back with the same boot."""

_OUT_OF_SERVICE = frozenset({Stage.DOWN, Stage.CLOSED, Stage.DOUBT})


@dataclass(frozen=True, slots=True)
class State:
    """A worker's stage and its engine's versions."""

    stage: Stage = Stage.DOWN
    boot: str | None = None
    """The engine's boot; another one voids the rest."""
    installed: str | None = None
    proved: str | None = None
    proof: Proof | None = None
    prepared: str | None = None
    serving: bool = False
    """Whether it may take traffic: in Open, or between two proved versions."""
    lost_in: Stage | None = None
    """While DOWN: the stage in which the engine was lost."""
    loads: int = 0
    """How often the gate had counted a load when this was found or proved; at another number the
    rest is void."""


class IllegalEventError(Exception):
    """The event is not allowed in this state, which stays as it was."""


def step(
    state: State,
    event: StageEvent,
    *,
    boot: str | None = None,
    version: str | None = None,
    proof: Proof | None = None,
    loads: int = 0,
) -> State:
    """Return the state after the event (tests/property/test_swap.py checks its invariants).

    ``version`` is what was reloaded, or what a new boot holds; None if its weights were replaced.
    ``loads`` is the gate's count, of a boot or a proof.
    """
    target = _target(state, event)
    match event:
        case StageEvent.BOOTED:
            after = State(boot=boot, installed=version, prepared=state.prepared, loads=loads)
        case StageEvent.LOST:
            after = state if state.stage is Stage.DOWN else replace(state, lost_in=state.stage)
        case StageEvent.BACK:
            after = replace(state, lost_in=None)
        case StageEvent.RELOADED:
            after = replace(state, installed=version)
        case StageEvent.RELOAD_FAILED:
            after = replace(state, installed=None)
        case StageEvent.PROVED:
            after = replace(state, proved=state.installed, proof=proof, loads=loads)
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
        raise IllegalEventError(f"{event} cannot happen without a known installed version")
    if event is StageEvent.RELEASED and state.proved is not None:
        raise IllegalEventError(f"{event} would forget that {state.proved} is proved")
    return target


def _settled(state: State, stage: Stage) -> State:
    """Return the state in its new stage, without what is void there."""
    serving = stage is Stage.OPEN or (state.serving and stage not in _OUT_OF_SERVICE)
    if stage in {Stage.LOADING, Stage.LOADED, Stage.DOUBT}:
        state = replace(state, proved=None, proof=None)
    return replace(state, stage=stage, serving=serving)


def observe(state: State, boot: str | None, loads: int = 0) -> StageEvent | None:
    """Return the event for the boot that answers, or for no answer; None if nothing changed.

    A record that is older than the boot's last load counts like one of another boot. In doubt
    it need not.
    """
    if boot is None:
        return None if state.stage is Stage.DOWN else StageEvent.LOST
    if boot != state.boot:
        return StageEvent.BOOTED
    if state.stage is not Stage.DOWN:
        return None
    is_doubt = state.lost_in is not None and BACK_TO.get(state.lost_in) is Stage.DOUBT
    return StageEvent.BACK if is_doubt or loads == state.loads else StageEvent.BOOTED


class Rescue(StrEnum):
    """What a sidecar does on its own, mostly at the end of a change without a driver."""

    ALIGN = "Align"
    """Move gate and engine to where the stage says they are, after an outside change."""

    UNDO = "Undo"
    """Resume with the weights from before the pause."""
    OPEN = "Open"
    """Serve the proved version."""
    END = "End"
    """End the engine, whose weights are not proved; it restarts on the base model."""
    TURN_AWAY = "TurnAway"
    """Reject requests, after too long in doubt."""


def rescue(stage: Stage) -> Rescue | None:
    """Return how a change without a driver ends."""
    match stage:
        case Stage.PAUSED:
            return Rescue.UNDO
        case Stage.PROVED:
            return Rescue.OPEN
        case Stage.LOADING | Stage.LOADED | Stage.DOUBT:
            # Loading without a command under way: between two calls of a transfer.
            return Rescue.END
        case _:
            return None


def has_no_pause(stage: Stage, *, is_open: bool) -> bool:
    """Return whether a recorded change has an open gate, so that no request waits.

    A change closes the gate first and opens it last. So an open one shows that the sidecar
    exited before the pause or after the change; closing it would make clients wait.
    """
    return is_open and rescue(stage) in {Rescue.UNDO, Rescue.OPEN}


def fallback(state: State) -> Fallback:
    """Return what the gate does at its deadline without this sidecar.

    Open only for a worker that served before and is proved on record, so that a restarted
    sidecar finds what it has written. A late joiner still lacks its adapters.
    """
    is_known = state.stage in {Stage.PAUSED, Stage.PROVED} and state.proved is not None
    return "open" if is_known and state.serving else "refuse"


def steps_to(state: State, version: str, through: Verb = Verb.RESUME) -> tuple[Verb, ...]:
    """Return the steps from here to serving ``version``, up to and including ``through``.

    None if it is served already, or if the worker is past that step. Through Pause includes
    the flush: whatever can fail must do so before any worker of the group begins to load.
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
