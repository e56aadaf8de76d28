"""The phase of one worker as status shows it, and the order of severity.

The operator computes a phase from the pod, the report and the command under way, and stores it
nowhere.
"""

from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.problems import Code, Problem
from rlfleet_contract.worker.report import Stage, WorkerReport
from rlfleet_operator.core.model.worker_pod import Pod, log_of
from rlfleet_operator.core.model.world import (
    ENGINE_CONTAINER,
    RUNNING,
    Fleet,
    Worker,
    World,
    time_of,
)
from rlfleet_operator.crd.fleet_status import FleetStatus


class Phase(StrEnum):
    """The phase of a worker, defined from worst to best."""

    QUARANTINED = "Quarantined"
    """The engine is in doubt: gate closed and not ready until a reload is proved."""
    UNREACHABLE = "Unreachable"
    """The pod runs, but its sidecar does not answer."""
    PENDING = "Pending"
    """The pod does not run yet."""
    STARTING = "Starting"
    """The engine does not answer yet, or is being restarted."""
    CATCHING_UP = "CatchingUp"
    """The engine runs behind a closed gate and changes to the fleet's version."""
    TERMINATING = "Terminating"
    RELOADING = "Reloading"
    VERIFYING = "Verifying"
    RESUMING = "Resuming"
    FLUSHING = "Flushing"
    PAUSING = "Pausing"
    PAUSED = "Paused"
    """A trainer has paused the fleet; the worker has proved the version that it will serve."""
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
"""A pod that still exists so long after its grace period has lost its kubelet."""
_UNSEEN_S = 30.0
"""How long a scheduler may leave a pod without a word."""
_NOTICED_S = 10.0
"""The kubelet has this long to call a pod ready once its gate is true."""
BADNESS = {phase: place for place, phase in enumerate(Phase)}
CHANGING = (Phase.PAUSING, Phase.FLUSHING, Phase.RELOADING, Phase.VERIFYING, Phase.RESUMING)
"""The steps of a change in their order."""


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
    if worker.report is not None or worker.silence is not None:
        return Phase.UNREACHABLE
    known = worker.last.phase if worker.last else None
    return next((phase for phase in Phase if phase == known), Phase.STARTING)


def remembered(workers: Iterable[Worker], status: FleetStatus) -> tuple[Worker, ...]:
    """Return the workers, those that have not answered this operator with their last state.

    Only an operator writes a pod's readiness gate, so that status is about the same pod. Without
    that, each new leader would show healthy workers as starting.
    """
    known = {one.name: one for one in status.workers}
    return tuple(
        replace(worker, last=known.get(worker.name)) if _is_marked(worker) else worker
        for worker in workers
    )


def _is_marked(worker: Worker) -> bool:
    pod = worker.pod
    return worker.report is None and pod is not None and pod.weights_ready is not None


def complaint_of(worker: Worker, world: World) -> str | None:
    """Return what is wrong with a worker, in one sentence; None if nothing is."""
    overdue = overdue_at(worker)
    if overdue is not None and world.moment >= overdue:
        return _still_ends(worker)
    if (found := _of_pod(worker, world.moment) or _of_silence(worker)) is not None:
        return found
    problem = None
    if worker.report and worker.reachable:
        problem = _problem_of(worker, worker.report, world.fleet)
    if problem is not None and not _is_explained(worker, problem):
        return f"{problem.code}: {problem.message}"
    return awaited_by(worker) or _begun_by(worker, world) or _unready(worker, world)


def _still_ends(worker: Worker) -> str:
    kept = worker.pod.finalizers if worker.pod else ()
    if kept:
        # Neither the kubelet nor --force removes them.
        return (
            f"pod is still terminating, kept by finalizers: {', '.join(kept)};"
            " see what the controller of each waits for"
        )
    return "pod is still terminating; if its node is lost, delete the pod with --force"


def _of_silence(worker: Worker) -> str | None:
    """Return what is said of a worker that does not answer: by this operator, or in status."""
    crash = worker.pod.crash if worker.pod and not worker.reachable else None
    silence = worker.silence if phase_of(worker) is Phase.UNREACHABLE else None
    # The crash first, because a long message is cut.
    told = "; ".join(why for why in (crash, silence) if why)
    return told or (worker.last.message if worker.last else None)


def _is_explained(worker: Worker, problem: Problem) -> bool:
    """Return whether a restart of the engine, which says more, is why it was not reached."""
    is_restarting = worker.stage is Stage.DOWN and worker.pod and worker.pod.engine_restarts
    return bool(is_restarting) and problem.code is Code.ENGINE_UNREACHABLE


def _begun_by(worker: Worker, world: World) -> str | None:
    """Return the progress of a worker whose engine is not in service yet."""
    phase, pod = phase_of(worker), worker.pod
    if pod is None or phase not in {Phase.STARTING, Phase.CATCHING_UP}:
        return None
    ended = f", last exit code {pod.engine_exit}" if pod.engine_exit else ""
    again = f"restart {pod.engine_restarts}{ended}" if pod.engine_restarts else ""
    if phase is Phase.CATCHING_UP:
        return _loading(worker, world, again)
    if pod.was_ready:
        return f"engine does not answer; see: kubectl logs {pod.name} -c {ENGINE_CONTAINER}"
    if again:
        # One restart may be a passing fault; of more, the log is the way out.
        log = f"; {log_of(pod.name, ENGINE_CONTAINER)}" if pod.engine_restarts > 1 else ""
        return f"engine restarting ({again}{log})"
    # Until the sidecar answers, only the pod's own state is known.
    return "engine starting" if worker.report is not None else None


def _loading(worker: Worker, world: World, again: str) -> str:
    target, exited = world.fleet.target, _exit_of(worker)
    loads = f"engine is up, loading {target}" if target else "engine is up"
    if exited is not None:
        return f"{loads}; it {exited}"
    return f"{loads} ({again})" if again else loads


def noticed_by(worker: Worker) -> float:
    """Return until when the kubelet may still find out that a worker may take traffic.

    0 for a worker that takes it, or whose gate is not true.
    """
    pod = worker.pod
    if pod is None or pod.ready or not pod.weights_ready or pod.weights_ready_at is None:
        return 0.0
    return pod.weights_ready_at + _NOTICED_S


def _unready(worker: Worker, world: World) -> str | None:
    """Return what to look at if Kubernetes alone keeps a worker that serves from its traffic.

    As of a node whose kubelet is lost, while the sidecar still answers.
    """
    pod = worker.pod
    if pod is None or pod.ready or pod.terminating or not (pod.weights_ready and worker.is_open):
        return None
    if 0 < noticed_by(worker) - world.moment <= _NOTICED_S:
        return None
    what = f": {pod.unready}; see" if pod.unready else "; see its node and"
    return f"engine serves, pod not ready{what}: kubectl describe pod {pod.name}"


def _of_pod(worker: Worker, moment: float) -> str | None:
    """Return what is wrong with the pod, or that its engine exited during a load."""
    pod = worker.pod
    if pod is None:
        return None
    if pod.has_ended and not pod.terminating:
        return _ended(pod, worker.replace_at)
    return _exited(worker) or pod.trouble or _awaits(pod) or _unseen(worker, moment)


def _awaits(pod: Pod) -> str | None:
    """Return for which init container of another tool the engine waits."""
    name = pod.awaited_init
    return name and f"waiting for init container {name}; log: kubectl logs {pod.name} -c {name}"


def _exited(worker: Worker) -> str | None:
    """Return a message if the engine exited while it loaded a version, and is not back yet."""
    told = None if phase_of(worker) is Phase.CATCHING_UP else _exit_of(worker)
    return f"engine {told}" if told else None


def _exit_of(worker: Worker) -> str | None:
    """Return how the engine exited while it loaded a version, if it did."""
    exits = worker.report.exits if worker.report else None
    if exits is None or worker.is_settled or worker.pod is None:
        return None
    how = f" (code {worker.pod.engine_exit})" if worker.pod.engine_exit else ""
    times = f", {exits.count} times" if exits.count > 1 else ""
    return f"exited{how} while {exits.version} was loading{times}"


def problem_in(report: WorkerReport, fleet: Fleet) -> Problem | None:
    """Return the failure or the rejected checkpoint that a worker reports; None without one.

    A sidecar keeps a rejection until its next prepare. One of a version that is no longer
    requested is left out, because it would show a healthy worker as failed.
    """
    refusal = report.refusal
    is_asked = refusal is not None and fleet.asks_for(refusal.version)
    return report.failure or (refusal if is_asked else None)


def _problem_of(worker: Worker, report: WorkerReport, fleet: Fleet) -> Problem | None:
    """Return a worker's problem; of versions that it rejects in turn, always the target's."""
    of_target = next((p for p in worker.rejections if p.version == fleet.target), None)
    return report.failure or of_target or problem_in(report, fleet)


def _ended(pod: Pod, replace_at: float) -> str:
    # The time precedes the reason, because a long reason is cut.
    what = f"pod has {pod.phase.lower()}, will be replaced at {time_of(replace_at)}"
    return f"{what}: {pod.trouble}" if pod.trouble else what


def _unseen(worker: Worker, moment: float) -> str | None:
    """Return that no scheduler has looked at the pod, once that takes too long."""
    unseen = unseen_at(worker)
    if unseen is None or moment < unseen:
        return None
    return (
        "no scheduler has looked at the pod;"
        " kube-scheduler, or the one in spec.template.spec.schedulerName, does not run"
    )


def unseen_at(worker: Worker) -> float | None:
    """Return when a pod without a node counts as one that no scheduler looks at.

    A scheduler that finds no node says so: then there is a trouble.
    """
    pod = worker.pod
    if pod is None or pod.created_at is None or not pod.is_active or pod.trouble is not None:
        return None
    return None if pod.topology[1] or pod.phase == RUNNING else pod.created_at + _UNSEEN_S


def overdue_at(worker: Worker) -> float | None:
    """Return the moment from which a terminating pod is overdue; None for any other pod."""
    ends_by = worker.pod.ends_by if worker.pod else None
    return None if ends_by is None else ends_by + _OVERDUE_S


def awaited_by(worker: Worker, version: str | None = None) -> str | None:
    """Return what a worker's prepare (of ``version``, or of any) waits for; None without one."""
    progress = worker.report.progress if worker.report and worker.reachable else None
    if progress is None or progress.waiting_for is None:
        return None
    return f"waiting: {progress.waiting_for}" if version in {None, progress.version} else None
