"""Which workers are or may be out of service, and which pods are replaced.

Batches of weights and replacements of pods share maxUnavailable, so both use this module. A
worker that cannot recover by itself counts for a bounded time only: the next version, or the
next template, may repair it.
"""

from collections.abc import Iterable

from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.actions import DeletePod
from rlfleet_operator.core.model.worker_pod import Pod
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.rollout import budget

_RETURN_S = 60.0
"""A worker that serves may be not ready for so long before it counts as broken."""
_START_S = 600.0
"""After this time a pod that is not ready no longer counts as starting."""


def may_be_changing(worker: Worker) -> bool:
    """Return whether a worker was in service when last known, and may be changing.

    The readiness gate stays true through a change, and the pod's readiness shows a failure before
    the report does. A worker that serves but does not answer may be changing.
    """
    pod = worker.pod
    if pod is None or not pod.weights_ready:
        return False
    return worker.is_changing or (pod.ready and not worker.is_live)


def is_returning(worker: Worker, version: str, world: World) -> bool:
    """Return whether a worker that has changed is expected back: its pod is not ready yet.

    Its sidecar or the kubelet's probe was late during the change; that sidecar may restart now.
    """
    pod, report = worker.pod, worker.report
    if pod is None or pod.ready or not pod.is_active or pod.ready_changed_at is None:
        return False
    has_changed = report is not None and (report.stage, report.proved) == (Stage.OPEN, version)
    # A time far in the future comes from another clock, or from before a clock step.
    return has_changed and abs(world.moment - pod.ready_changed_at) < _RETURN_S


def is_being_replaced(worker: Worker, world: World) -> bool:
    """Return whether a worker is out because of a new pod template.

    While outdated pods remain, that is every worker that starts; later only those whose pods the
    operator deleted for the template.
    """
    if not world.has_outdated and worker.ordinal not in _recorded(world):
        return False
    return _is_coming(worker, world)


def replacing(world: World) -> list[int]:
    """Return the ordinals whose pods the operator deletes for a new template, for status.

    Each stays recorded until its new pod is ready, is stuck or takes too long.
    """
    known = _recorded(world)
    due = {action.name for action in replacements(world)}
    looked_at = world.desired if due or known else world.exceptional
    return [
        w.ordinal
        for w in looked_at
        if (w.name in due and world.is_outdated(w))
        or _is_ending(w, world)
        or (w.ordinal in known and (world.is_outdated(w) or _is_coming(w, world)))
    ]


def _recorded(world: World) -> frozenset[int]:
    """Return the recorded ordinals; without a record of an older release, those that start now."""
    if _recorded not in world.memo:
        world.memo[_recorded] = frozenset(_read(world))
    known: frozenset[int] = world.memo[_recorded]
    return known


def _read(world: World) -> Iterable[int]:
    status = world.fleet.status
    if status.replacing is not None:
        return status.replacing
    starting = () if status.rollout is None else world.exceptional
    return [w.ordinal for w in starting if _is_coming(w, world)]


def _is_ending(worker: Worker, world: World) -> bool:
    """Return whether an outdated pod terminates, even if status does not record it."""
    is_terminating = worker.pod is not None and worker.pod.terminating
    return is_terminating and world.is_outdated(worker)


def _is_coming(worker: Worker, world: World) -> bool:
    """Return whether a worker is expected to serve soon: its start is not stuck."""
    pod = worker.pod
    if pod is None or pod.terminating:
        return True
    is_broken = pod.trouble is not None or pod.engine_restarts > 0 or pod.has_ended
    if pod.ready or is_broken or worker.stage is Stage.DOUBT:
        return False
    return _is_young(pod, world)


def _is_young(pod: Pod, world: World) -> bool:
    # A creation time far in the future comes from another clock, or from before a clock step.
    return pod.created_at is None or abs(world.moment - pod.created_at) < _START_S


def replacements(world: World) -> list[DeletePod]:
    """Return the pods to delete because they have ended or are outdated."""
    ended = [w for w in world.exceptional if _has_ended(w, world)]
    chosen = _outdated(world) if world.has_outdated else []
    return [
        *(_delete(w, "the pod has ended") for w in ended),
        *(_delete(w, "the pod template has changed", successor=w.ordinal) for w in chosen),
    ]


def _outdated(world: World) -> list[Worker]:
    """Return the workers whose pods are replaced now because of their template."""
    left = [w for w in world.desired if not _has_ended(w, world) and not _is_ending(w, world)]
    outdated = [w for w in left if world.is_outdated(w)]
    broken = [w for w in outdated if not w.takes_traffic and world.moment >= may_return_until(w)]
    return [*broken, *_within_budget(world, outdated)]


def may_return_until(worker: Worker) -> float:
    """Return until when a worker that serves is expected back though its pod is not ready.

    On a busy node the kubelet's probe comes too late now and then. To replace the pod at once
    would make seconds without traffic minutes. 0 for a worker that does not serve, or is ready.
    """
    pod = worker.pod
    if pod is None or pod.ready or pod.ready_changed_at is None or not worker.is_open:
        return 0.0
    return pod.ready_changed_at + _RETURN_S


def _has_ended(worker: Worker, world: World) -> bool:
    """Return whether a pod has ended, and the back-off before its replacement is over."""
    pod = worker.pod
    has_ended = pod is not None and pod.has_ended and not pod.terminating
    return has_ended and not worker.waits_to_be_replaced(world.moment)


def _within_budget(world: World, outdated: list[Worker]) -> list[Worker]:
    """Return the workers with traffic whose pods may be replaced now."""
    serving = [w for w in outdated if w.takes_traffic]
    limit, out = budget.max_unavailable(world.fleet.spec), sum(map(_counts_for_pods, world.desired))
    # A worker that has been silent for long counts already: replacing it costs nothing.
    silent = [w for w in serving if w.silence is not None and may_be_changing(w)]
    lost = silent[: budget.left(limit, out - len(silent))]
    available = [w for w in serving if not _counts_for_pods(w)]
    return [*lost, *available[: budget.left(limit, out)]]


def _counts_for_pods(worker: Worker) -> bool:
    """Return whether a worker counts for the budget of pods.

    Unlike for a batch of weights, every worker without traffic counts: if the first pods of a
    template fail, no further pod is replaced.
    """
    return not worker.takes_traffic or worker.is_changing or may_be_changing(worker)


def _delete(worker: Worker, why: str, successor: int | None = None) -> DeletePod:
    return DeletePod(worker.name, worker.pod.uid if worker.pod else "", why, successor)
