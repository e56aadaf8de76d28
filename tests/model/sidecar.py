"""What a worker's sidecar does, step by step.

The mirror of change/executor.py, steps.py and watchdog.py.

Each function takes the worker as it is and returns it as it is afterwards.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from rlfleet_contract.paths import BASE_VERSION
from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.problems import CHECKPOINT_CODES, Code
from rlfleet_contract.worker.proof import Proof
from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.proof.evidence import demand_alike
from rlfleet_sidecar.state import stage_machine
from rlfleet_sidecar.state.preconditions import CommandVerdict, judge, judge_update
from rlfleet_sidecar.state.stage_machine import IllegalEventError, Rescue, StageEvent
from tests import proofs
from tests.model.local import (
    NEVER,
    RESCUE,
    UNKNOWN,
    UPDATE,
    Answer,
    Command,
    Engine,
    Fate,
    Local,
    Mark,
    Running,
    ViolationError,
)

_BAD = {Code.RELOAD_FAILED, Code.PROOF_FAILED}
"""What shows that a version is bad."""
Fates = Mapping[str, Fate]
_FAULT_CODES = {
    Verb.PREPARE: Code.CHECKPOINT_INCOMPLETE,
    Verb.PAUSE: Code.PAUSE_FAILED,
    Verb.FLUSH: Code.FLUSH_FAILED,
    Verb.RELOAD: Code.RELOAD_FAILED,
    Verb.VERIFY: Code.PROOF_FAILED,
    Verb.RESUME: Code.RESUME_FAILED,
}


@cache
def shown_of(version: str) -> Proof:
    """Return what a sound engine that holds this version shows."""
    return proofs.proof(version)


def moved(worker: Local, event: StageEvent, version: str | None = None) -> Local:
    """Write one event into the journal; an illegal one is a fault of the sidecar's."""
    boot = str(worker.engine.boot) if event is StageEvent.BOOTED else None
    proof = shown_of(worker.engine.holds) if event is StageEvent.PROVED else None
    try:
        state = stage_machine.step(worker.state, event, boot=boot, version=version, proof=proof)
    except IllegalEventError as error:
        raise ViolationError(f"the sidecar runs into an illegal event: {error}") from error
    if event is StageEvent.BOOTED:
        # What is recorded of a failure is void with the engine that it happened to.
        lost_in = worker.state.lost_in or worker.state.stage
        worker = worker._replace(failure=None, harmed_by="")
        if worker.loading is not None:
            worker = _load_ended(worker, has_exited=lost_in in {Stage.LOADING, Stage.LOADED})
    if event is StageEvent.RELOADING and worker.running is not None:
        command = worker.running.command
        worker = worker._replace(loading=(command.version, command.operation))
    if event is StageEvent.PROVED:
        worker = worker._replace(loading=None, exits=None)
    begins_anew = event is StageEvent.RELOADING and worker.state.stage is Stage.DOUBT
    is_over = begins_anew or state.stage in {Stage.OPEN, Stage.CLOSED}
    is_overdue = worker.is_overdue and not is_over
    return worker._replace(state=state, is_overdue=is_overdue)


def _load_ended(worker: Local, *, has_exited: bool) -> Local:
    loading, before = worker.loading, worker.exits
    if loading is None or not has_exited:
        return worker._replace(loading=None, exits=None)
    count = before[2] + 1 if before is not None and before[:2] == loading else 1
    return worker._replace(loading=None, exits=(*loading, count))


# --- commands -----------------------------------------------------------------------------------


def received(worker: Local, command: Command) -> tuple[Local, Answer | None]:
    """Take a command that the fence lets through; no answer yet while it is under way."""
    if worker.running is not None:
        is_same = worker.running.command.key == command.key
        return worker, None if is_same else Answer(is_good=False)
    try:
        verbs = _steps(worker, command)
    except SidecarError:
        return worker, Answer(is_good=False)
    if not verbs:
        return worker, Answer(is_good=True)
    return worker._replace(running=Running(command, verbs)), None


def _steps(worker: Local, command: Command) -> tuple[str, ...]:
    state = worker.state
    if command.what != UPDATE:
        judge(state, Verb(command.what), command.version)
        return (command.what,)
    failure = worker.failure
    if (
        failure is not None
        and not failure.retryable
        and state.stage is Stage.DOUBT
        and (failure.operation, failure.version) == (command.operation, command.version)
    ):
        raise SidecarError(failure.code, "as it was answered before")
    if state.proved == command.version:
        demand_alike(command.expected, state.proof)
    return tuple(v for v in judge_update(state, command.version, command.through) if v not in NEVER)


def advanced(worker: Local, fates: Fates) -> tuple[Local, Answer | None]:
    """Take the next small step of the command under way."""
    running = worker.running
    if running is None:
        return worker, None
    verb = running.verbs[0]
    if running.command.what == RESCUE:
        return _rescued(worker, Rescue(verb)), None
    if not running.is_begun:
        try:
            verdict = judge(worker.state, Verb(verb), running.command.version)
        except SidecarError as error:
            return failed(worker, Verb(verb), error.code), Answer(is_good=False)
        if verdict is CommandVerdict.DONE:
            return _next(worker)
        written = _begun(worker, Verb(verb), fates)
        if written is not worker:
            return written._replace(running=running._replace(is_begun=True)), None
    return _acted(worker, Verb(verb), running.command, fates)


def _next(worker: Local) -> tuple[Local, Answer | None]:
    running = worker.running
    if running is None or len(running.verbs) == 1:
        return worker._replace(running=None), Answer(is_good=True)
    return worker._replace(running=running._replace(verbs=running.verbs[1:], is_begun=False)), None


def _begun(worker: Local, verb: Verb, fates: Fates) -> Local:
    """Write down what is about to be done, or do the first half of it."""
    running = worker.running
    if verb is Verb.PAUSE and running is not None:
        return moved(_risked(worker, running.command, fates), StageEvent.PAUSING)
    if verb is Verb.RELOAD and worker.engine.is_up and worker.engine.is_paused:
        return moved(worker, StageEvent.RELOADING)
    if verb is Verb.RESUME and _is_there(worker):
        return worker._replace(engine=worker.engine._replace(is_paused=False, is_open=True))
    return worker


def _risked(worker: Local, command: Command, fates: Fates) -> Local:
    """Remember that clients have to wait for a version that is not good."""
    fate = fates[command.version]
    if fate is Fate.REFUSED:
        raise ViolationError(f"a worker is paused for {command.version}, which is refused")
    if fate is Fate.GOOD or not worker.is_ready:
        return worker
    return worker._replace(at_risk=command.operation)


def _is_there(worker: Local) -> bool:
    """Whether the engine answers and is the boot that the journal is about."""
    return worker.engine.is_up and worker.state.boot == str(worker.engine.boot)


def _gone(worker: Local) -> Code:
    return Code.ENGINE_RESTARTED if worker.engine.is_up else Code.ENGINE_UNREACHABLE


def _acted(
    worker: Local, verb: Verb, command: Command, fates: Fates
) -> tuple[Local, Answer | None]:
    acts = {
        Verb.PREPARE: _prepared,
        Verb.PAUSE: _paused,
        Verb.FLUSH: lambda worker, _command, _fates: _next(worker),
        Verb.RELOAD: _reloaded,
        Verb.VERIFY: _verified,
        Verb.RESUME: _resumed,
    }
    return acts[verb](worker, command, fates)


def _paused(worker: Local, _command: Command, _fates: Fates) -> tuple[Local, Answer | None]:
    if not _is_there(worker):
        return failed(worker, Verb.PAUSE, _gone(worker)), Answer(is_good=False)
    engine = worker.engine._replace(is_open=False, is_paused=True)
    return _next(worker._replace(engine=engine))


def _resumed(worker: Local, _command: Command, _fates: Fates) -> tuple[Local, Answer | None]:
    if worker.running is None or not worker.running.is_begun:
        return failed(worker, Verb.RESUME, _gone(worker)), Answer(is_good=False)
    return _next(_opened(worker))


def _opened(worker: Local) -> Local:
    is_proved = worker.state.stage is Stage.PROVED
    after = moved(worker, StageEvent.OPENED)
    return after._replace(failure=None) if is_proved else after


def _prepared(worker: Local, command: Command, fates: Fates) -> tuple[Local, Answer | None]:
    if fates[command.version] is Fate.REFUSED:
        return failed(worker, Verb.PREPARE, Code.CHECKPOINT_INVALID), Answer(is_good=False)
    state = replace(worker.state, prepared=command.version)
    return _next(worker._replace(state=state, refusal=None))


def _reloaded(worker: Local, command: Command, fates: Fates) -> tuple[Local, Answer | None]:
    running, engine = worker.running, worker.engine
    if running is None or not running.is_begun:
        code = Code.PAUSE_FAILED if engine.is_up else Code.ENGINE_UNREACHABLE
        return failed(worker, Verb.RELOAD, code), Answer(is_good=False)
    if fates[command.version] is Fate.EXITS:
        return faulted(dead(worker), is_done=False)
    # A request whose connection was lost is not sent again, so it reaches no later boot.
    if not _is_there(worker) or fates[command.version] is Fate.CRUSHES:
        return faulted(worker, is_done=False)
    engine = engine._replace(holds=command.version, is_tested=False)
    return _next(moved(worker._replace(engine=engine), StageEvent.RELOADED, command.version))


def _verified(worker: Local, command: Command, fates: Fates) -> tuple[Local, Answer | None]:
    if not _is_there(worker):
        is_new = worker.state.stage is Stage.LOADED and not worker.engine.is_up
        code = Code.PROOF_FAILED if is_new else _gone(worker)
        after = moved(worker, StageEvent.PROOF_FAILED)
        return failed(after, Verb.VERIFY, code), Answer(is_good=False)
    engine = worker.engine
    try:
        demand_alike(command.expected, shown_of(engine.holds))
    except SidecarError:
        return faulted(worker, is_done=False)
    if fates.get(engine.holds) is not Fate.GOOD:
        return faulted(worker, is_done=False)
    engine = engine._replace(is_paused=False, is_open=False, is_tested=True)
    return _next(moved(worker._replace(engine=engine), StageEvent.PROVED))


# --- failures -----------------------------------------------------------------------------------


def faulted(worker: Local, *, is_done: bool, is_stuck: bool = False) -> tuple[Local, Answer | None]:
    """Let the present step's act fail, though it may have been done; stuck: its undoing too."""
    running = worker.running
    if running is None:
        return worker, None
    verb, engine = Verb(running.verbs[0]), worker.engine
    if verb is Verb.RELOAD and not running.is_begun:
        # The files are no longer those that were checked.
        return failed(worker, verb, Code.CHECKPOINT_INVALID), Answer(is_good=False)
    if verb is Verb.PAUSE and is_done:
        engine = engine._replace(is_open=False, is_paused=True)
    if verb is Verb.RELOAD:
        worker = moved(worker, StageEvent.RELOAD_FAILED)
        engine = engine._replace(holds=UNKNOWN, is_tested=False) if _is_there(worker) else engine
    if verb is Verb.VERIFY:
        worker = moved(worker, StageEvent.PROOF_FAILED)
        engine = engine._replace(is_paused=True, is_open=False)
    worker = worker._replace(engine=engine)
    return failed(worker, verb, _FAULT_CODES[verb], is_stuck=is_stuck), Answer(is_good=False)


def failed(worker: Local, verb: Verb, code: Code, *, is_stuck: bool = False) -> Local:
    """Note the failure, undo what can be undone, see how the engine stands."""
    if worker.running is None:
        return worker
    command = worker.running.command
    problem = Mark(code, command.version, command.operation)
    is_harmed = worker.state.stage is Stage.DOUBT and code in _BAD
    harmed_by = worker.at_risk if is_harmed else ""
    worker = worker._replace(running=None, at_risk="", harmed_by=harmed_by or worker.harmed_by)
    if code in CHECKPOINT_CODES:
        state = worker.state
        if state.prepared == command.version:
            state = replace(state, prepared=None)
        worker = worker._replace(state=state, refusal=problem)
    if verb is Verb.PREPARE:
        return worker
    worker = worker._replace(failure=problem)
    if verb in {Verb.RELOAD, Verb.VERIFY} and worker.loading is not None:
        worker = _load_ended(worker, has_exited=not _is_there(worker))
    is_undoable = verb not in {Verb.VERIFY, Verb.RESUME} and not is_stuck
    if is_undoable and worker.state.stage is Stage.PAUSED and worker.engine.is_up:
        worker = _undone(worker)
    return _applied(worker)


def _undone(worker: Local) -> Local:
    is_proved = worker.state.proved is not None
    if not is_proved:
        # The engine is let run whichever boot it is; the gate stays shut.
        after = worker._replace(engine=worker.engine._replace(is_paused=False))
        return moved(after, StageEvent.RELEASED)
    if not _is_there(worker):
        return worker._replace(engine=worker.engine._replace(is_paused=False))
    engine = worker.engine._replace(is_paused=False, is_open=True)
    return moved(worker._replace(engine=engine), StageEvent.OPENED)


def _applied(worker: Local) -> Local:
    """Look once, as after a failure: a boot that was not seen before is still cold."""
    event = stage_machine.observe(worker.state, worker.state.boot if _is_there(worker) else None)
    return worker if event is None else moved(worker, event)


# --- what the sidecar does by itself --------------------------------------------------------------


def looked(worker: Local) -> Local:
    """Look at the engine while no command is under way, and keep it in order."""
    if worker.running is not None:
        return worker
    if worker.engine.is_up and not _is_there(worker):
        engine = worker.engine._replace(is_open=False, is_paused=False)
        return moved(worker._replace(engine=engine), StageEvent.BOOTED, BASE_VERSION)
    worker = _applied(worker)
    return _in_order(worker) if worker.engine.is_up else worker


def _in_order(worker: Local) -> Local:
    is_open = worker.state.stage is Stage.OPEN
    if worker.engine.is_open != is_open or (is_open and worker.engine.is_paused):
        return _led(worker, Rescue.ALIGN)
    return worker


def expired(worker: Local) -> Local:
    """Act as a sidecar does without a request for its time to live."""
    way = stage_machine.rescue(worker.state.stage)
    if worker.running is not None or way is None:
        return worker
    return _led(worker, way)


def is_given_up(worker: Local) -> bool:
    """Return whether a failed pause could not be undone, and no driver's command will do it."""
    is_resumable = worker.state.proved is not None
    return worker.state.stage is Stage.PAUSED and worker.failure is not None and not is_resumable


def _led(worker: Local, way: Rescue) -> Local:
    return worker._replace(running=Running(Command(RESCUE, "", way), (way,)))


def _rescued(worker: Local, way: Rescue) -> Local:
    engine, after = worker.engine, worker._replace(running=None)
    if worker.running is None or not _is_there(worker):
        return after
    match way:
        case Rescue.UNDO:
            after = _undone(after)
        case Rescue.OPEN if not worker.running.is_begun:
            running = worker.running._replace(is_begun=True)
            after = worker._replace(engine=engine._replace(is_open=True), running=running)
        case Rescue.OPEN:
            after = moved(after, StageEvent.OPENED)
        case Rescue.END:
            after = dead(after)
        case Rescue.ALIGN:
            is_open = worker.state.stage is Stage.OPEN
            is_paused = engine.is_paused and not is_open
            engine = engine._replace(is_open=is_open, is_paused=is_paused)
            after = after._replace(engine=engine)
    return after


# --- deaths -------------------------------------------------------------------------------------


def waited(worker: Local) -> Local:
    """Let a gate that is closed for a change stay so for longer than a pause may take."""
    is_closed = worker.state.stage in {Stage.PAUSED, Stage.LOADING, Stage.LOADED, Stage.PROVED}
    return worker._replace(is_overdue=True) if is_closed else worker


def dead(worker: Local) -> Local:
    """Let the engine die."""
    return worker._replace(engine=Engine(boot=worker.engine.boot + 1))


def risen(worker: Local) -> Local:
    """Let the engine come back, on the base model behind a closed gate."""
    return worker._replace(engine=worker.engine._replace(is_up=True))


def restarted(worker: Local) -> Local:
    """Let the sidecar die and come back; a command under way is gone.

    What is read in place was known to it alone.
    """
    after = moved(worker, StageEvent.LOST)._replace(running=None, at_risk="")
    if worker.has_cache:
        return after
    return after._replace(state=replace(after.state, prepared=None))


def silenced(worker: Local) -> Local:
    """Let the engine not answer for a while, as the sidecar sees it."""
    return worker if worker.running else moved(worker, StageEvent.LOST)
