"""Which workers are out of service, or may be, and which pods are replaced.

A batch of weights and the replacement of pods take workers out by the same maxUnavailable,
so both ask here. What cannot come back by itself is charged for a bounded time: the next
weights, or the next template, may be what it lacks.
"""

from collections.abc import Iterable

from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.actions import DeletePod
from rlfleet_operator.core.model.world import Pod, Worker, World
from rlfleet_operator.core.rollout import budget

_START_S = 600.0
"""A pod that has not become ready for so long is not waited for any more."""


def may_be_changing(worker: Worker) -> bool:
    """Return whether a worker was in service, as far as we know, and may be in a change.

    Our own mark stays true through a change, while the pod's readiness tells of a failure
    before its report does. One that serves and does not answer us may be changing.
    """
    pod = worker.pod
    if pod is None or not pod.weights_ready:
        return False
    return worker.is_changing or (pod.ready and not worker.is_live)


def is_being_replaced(worker: Worker, world: World) -> bool:
    """Return whether a worker is out because of a new pod template.

    While the template goes through the fleet, that is each one that starts; after that, those
    whose pod the operator has deleted for it.
    """
    if not world.has_outdated and worker.ordinal not in _recorded(world):
        return False
    return _is_coming(worker, world)


def replacing(world: World) -> list[int]:
    """Return the ordinals whose pods the operator deletes for a new template, for status.

    Each stays on record until its successor was ready, does not get on or took too long.
    """
    known = _recorded(world)
    due = {action.name for action in replacements(world)}
    return [
        w.ordinal
        for w in world.desired
        if (w.name in due and world.is_outdated(w))
        or _is_ending(w, world)
        or (w.ordinal in known and (world.is_outdated(w) or _is_coming(w, world)))
    ]


def _recorded(world: World) -> frozenset[int]:
    """Return the ordinals on record as being replaced.

    A release before kept no such record: what starts just now may be one of them.
    """
    if _recorded not in world.memo:
        world.memo[_recorded] = frozenset(_read(world))
    known: frozenset[int] = world.memo[_recorded]
    return known


def _read(world: World) -> Iterable[int]:
    status = world.fleet.status
    if status.replacing is not None:
        return status.replacing
    starting = () if status.rollout is None else world.desired
    return [w.ordinal for w in starting if _is_coming(w, world)]


def _is_ending(worker: Worker, world: World) -> bool:
    """Return whether an outdated pod ends: also when the process that deleted it wrote nothing."""
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
    # One that was made far ahead of now was made by another clock, or before this one was set back.
    return pod.created_at is None or abs(world.moment - pod.created_at) < _START_S


def replacements(world: World) -> list[DeletePod]:
    """Return the pods to end because they are broken for good or outdated."""
    ended = [w for w in world.desired if _has_ended(w, world)]
    left = [w for w in world.desired if not _has_ended(w, world) and not _is_ending(w, world)]
    outdated = [w for w in left if world.is_outdated(w)]
    broken = [w for w in outdated if not w.takes_traffic]
    chosen = [*broken, *_within_budget(world, outdated)]
    return [
        *(_delete(w, "the pod has ended") for w in ended),
        *(_delete(w, "the pod template has changed") for w in chosen),
    ]


def _has_ended(worker: Worker, world: World) -> bool:
    """Return whether a pod has ended, and the pause before its successor is over."""
    pod = worker.pod
    has_ended = pod is not None and pod.has_ended and not pod.terminating
    return has_ended and not worker.waits_to_be_replaced(world.moment)


def _within_budget(world: World, outdated: list[Worker]) -> list[Worker]:
    """Return the workers that take traffic and whose pods may be replaced now."""
    serving = [w for w in outdated if w.takes_traffic]
    limit, out = budget.max_unavailable(world.fleet.spec), sum(map(_is_unavailable, world.desired))
    # One whose silence has lasted is out already: to replace it costs no more.
    silent = [w for w in serving if w.silence is not None and may_be_changing(w)]
    lost = silent[: budget.left(limit, out - len(silent))]
    available = [w for w in serving if not _is_unavailable(w)]
    return [*lost, *available[: budget.left(limit, out)]]


def _is_unavailable(worker: Worker) -> bool:
    """Return whether the budget for pods charges a worker.

    The same predicate as for a batch of weights, and whatever else takes no traffic: a template
    whose first pods fail takes no more.
    """
    return not worker.takes_traffic or worker.is_changing or may_be_changing(worker)


def _delete(worker: Worker, why: str) -> DeletePod:
    return DeletePod(worker.name, worker.pod.uid if worker.pod else "", why)
