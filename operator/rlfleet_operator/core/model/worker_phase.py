"""The phase of one worker, as people read it, and the order of how bad each is.

A phase is derived anew from the pod, the report and the command under way; no
phase is stored anywhere.
"""

from enum import StrEnum

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.problems import Problem
from rlfleet_contract.worker.report import Stage, WorkerReport
from rlfleet_operator.core.model.world import RUNNING, Fleet, Pod, Worker, World, time_of


class Phase(StrEnum):
    """Where a worker stands; the order of definition is worst first."""

    QUARANTINED = "Quarantined"
    """The engine is in doubt: gate closed, not ready, never resumed."""
    UNREACHABLE = "Unreachable"
    """The pod runs, its sidecar does not answer."""
    PENDING = "Pending"
    """The pod does not run yet."""
    STARTING = "Starting"
    """The engine does not answer yet, or is being restarted."""
    CATCHING_UP = "CatchingUp"
    """The engine runs behind a closed gate, on the way to the fleet's version."""
    TERMINATING = "Terminating"
    RELOADING = "Reloading"
    VERIFYING = "Verifying"
    RESUMING = "Resuming"
    FLUSHING = "Flushing"
    PAUSING = "Pausing"
    PAUSED = "Paused"
    """Its trainer has paused the fleet; it has proved what it will serve."""
    PREPARING = "Preparing"
    SERVING = "Serving"


_BY_VERB = {
    Verb.PREPARE: Phase.PREPARING,
    Verb.PAUSE: Phase.PAUSING,
    Verb.FLUSH: Phase.FLUSHING,
    Verb.RELOAD: Phase.RELOADING,
    Verb.VERIFY: Phase.VERIFYING,
    Verb.RESUME: Phase.RESUMING,
}
_BY_STAGE = {
    Stage.DOWN: Phase.STARTING,
    Stage.CLOSED: Phase.CATCHING_UP,
    Stage.OPEN: Phase.SERVING,
    Stage.PAUSED: Phase.PAUSING,
    Stage.LOADING: Phase.RELOADING,
    Stage.LOADED: Phase.VERIFYING,
    Stage.PROVED: Phase.RESUMING,
    Stage.DOUBT: Phase.QUARANTINED,
}
_OVERDUE_S = 60.0
"""A pod that stands so long after its grace is not ended by its kubelet."""
BADNESS = {phase: place for place, phase in enumerate(Phase)}
CHANGING = (Phase.PAUSING, Phase.FLUSHING, Phase.RELOADING, Phase.VERIFYING, Phase.RESUMING)
"""The steps of a change, in the order in which a worker goes through them."""


def phase_of(worker: Worker) -> Phase:
    """Return the phase of a worker."""
    pod = worker.pod
    if pod is None:
        return Phase.PENDING
    if pod.terminating:
        return Phase.TERMINATING
    if worker.report is None or not worker.reachable:
        return _silent(worker)
    running = worker.report.running
    if worker.is_kept:
        return Phase.PAUSED
    is_hidden = running is not None and running.verb is Verb.PREPARE
    if running is None or (is_hidden and worker.stage is not Stage.OPEN):
        return _BY_STAGE[worker.stage]
    return _BY_VERB.get(running.verb, _BY_STAGE[worker.stage])


def _silent(worker: Worker) -> Phase:
    if worker.pod is None or worker.pod.phase != RUNNING:
        return Phase.PENDING
    is_lost = worker.report is not None or worker.silence is not None
    return Phase.UNREACHABLE if is_lost else Phase.STARTING


def complaint_of(worker: Worker, world: World) -> str | None:
    """Return what is wrong with a worker, in one sentence; None when nothing is known to be."""
    overdue = overdue_at(worker)
    if overdue is not None and world.moment >= overdue:
        return "its pod still ends; if its node is lost, delete the pod with --force"
    told = _of_pod(worker)
    if told is not None:
        return told
    if worker.silence and phase_of(worker) is Phase.UNREACHABLE:
        return worker.silence
    problem = None
    if worker.report and worker.reachable:
        problem = problem_in(worker.report, world.fleet)
    if problem is not None:
        return f"{problem.code}: {problem.message}"
    return awaited_by(worker) or _begun_by(worker, world)


def _begun_by(worker: Worker, world: World) -> str | None:
    """Return how far a worker has come whose engine is not in service yet."""
    phase, pod = phase_of(worker), worker.pod
    if pod is None or phase not in {Phase.STARTING, Phase.CATCHING_UP}:
        return None
    ended = f", last exit code {pod.engine_exit}" if pod.engine_exit else ""
    again = f"restart {pod.engine_restarts}{ended}" if pod.engine_restarts else ""
    if phase is Phase.CATCHING_UP:
        target = world.fleet.target
        loads = f"engine is up and loads {target}" if target else "engine is up"
        return f"{loads} ({again})" if again else loads
    if again:
        return f"engine restarting ({again})"
    # Before its sidecar answers, the pod's own state is all that is known.
    return "engine starting" if worker.report is not None else None


def _of_pod(worker: Worker) -> str | None:
    """Tell of a pod that has ended or does not get on, and of an engine that ended in a load."""
    pod = worker.pod
    if pod is None:
        return None
    if pod.has_ended and not pod.terminating:
        return _ended(pod, worker.replace_at)
    return _exited(worker) or pod.trouble


def _exited(worker: Worker) -> str | None:
    """Tell of an engine that ended while it loaded a version; None for one that did not."""
    exits = worker.report.exits if worker.report else None
    if exits is None or worker.is_settled or worker.pod is None:
        return None
    how = f" (code {worker.pod.engine_exit})" if worker.pod.engine_exit else ""
    times = f", {exits.count} times" if exits.count > 1 else ""
    return f"engine exited{how} while {exits.version} was loading{times}"


def problem_in(report: WorkerReport, fleet: Fleet) -> Problem | None:
    """Return what a worker complains of; None when nothing is that anybody asks for.

    A sidecar remembers a refusal until its next prepare: of a version that was asked for by
    mistake it would be told of a worker that is well.
    """
    refusal = report.refusal
    is_asked = refusal is not None and fleet.asks_for(refusal.version)
    return report.failure or (refusal if is_asked else None)


def _ended(pod: Pod, replace_at: float) -> str:
    # The moment before the reason: a long reason is cut.
    what = f"its pod has {pod.phase.lower()} and is replaced at {time_of(replace_at)}"
    return f"{what}: {pod.trouble}" if pod.trouble else what


def overdue_at(worker: Worker) -> float | None:
    """Return from when on a pod that ends is overdue; None for one that does not end."""
    ends_by = worker.pod.ends_by if worker.pod else None
    return None if ends_by is None else ends_by + _OVERDUE_S


def awaited_by(worker: Worker, version: str | None = None) -> str | None:
    """Return what a worker's prepare (of ``version``, or any) waits for; None if it does not."""
    progress = worker.report.progress if worker.report and worker.reachable else None
    if progress is None or progress.waiting_for is None:
        return None
    return f"waits: {progress.waiting_for}" if version in {None, progress.version} else None
