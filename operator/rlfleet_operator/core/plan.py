"""The next step of a fleet: a pure function of what is observed.

``plan`` decides one step and remembers nothing: whatever prefix of it was
carried out, the next observation leads to the same end (tests/property).
Pods and weights are two paths that share a budget only where both take workers
out of service:

- pods: make what is missing, end what is too much, replace what is outdated,
  so that at most maxUnavailable workers are not ready because of it;
- weights: prepare everywhere while everything serves, then commit in batches.
  A worker that serves nothing (new, replaced, restarted) changes at once: it
  costs no capacity, and proves a version before anyone else is paused for it.
"""

from collections import Counter
from dataclasses import dataclass

from rlfleet_contract.models import Stage
from rlfleet_contract.proof import Proof
from rlfleet_operator.core import budget
from rlfleet_operator.core.actions import Action, CreatePod, DeletePod, MarkPod, Prepare, Update
from rlfleet_operator.core.rollout import Rollout, current, goal_of, is_doubted
from rlfleet_operator.core.world import Worker, World

CATCH_UP = "catch-up"
"""The operation of changes that no rollout asks for."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, and which rollout has to be on record first."""

    rollout: Rollout | None
    actions: tuple[Action, ...]


def plan(world: World) -> Plan:
    """Return the next step; empty once the fleet is as declared.

    Nothing is asked of a worker for a rollout that is not on record.
    """
    if world.fleet.deleting:
        return Plan(None, ())
    rollout = current(world)
    actions: list[Action] = [*_pods(world), *_marks(world, rollout)]
    if rollout is None or not rollout.is_new:
        actions += _weights(world, rollout)
    return Plan(rollout, tuple(actions))


# --- pods ---------------------------------------------------------------------------------------


def _pods(world: World) -> list[Action]:
    wanted = world.fleet.spec.replicas
    made: list[Action] = [CreatePod(w.ordinal) for w in world.desired if w.pod is None]
    ended: list[Action] = [
        DeletePod(w.name, w.pod.uid, "scaled down")
        for w in reversed(world.workers)
        if w.pod is not None and w.ordinal >= wanted and not w.pod.terminating
    ]
    return made + ended + _replacements(world)


def _replacements(world: World) -> list[Action]:
    """Return the pods to end because they are broken for good or outdated."""
    present = [w for w in world.desired if w.pod is not None and not w.pod.terminating]
    ended = [w for w in present if w.pod is not None and w.pod.phase in {"Failed", "Succeeded"}]
    outdated = [
        w
        for w in present
        if w.pod is not None and w.pod.template_hash != world.template_hash and w not in ended
    ]
    broken = [w for w in outdated if not _is_in_service(w)]
    serving = [w for w in outdated if _is_in_service(w)]
    out = sum(not _is_in_service(w) for w in world.desired) + sum(
        w.is_changing for w in world.desired if _is_in_service(w)
    )
    room = budget.left(_limit(world), out)
    chosen = [w for w in serving if not w.is_changing][:room]
    return [
        *(_delete(w, "the pod has ended") for w in ended),
        *(_delete(w, "the pod template has changed") for w in [*broken, *chosen]),
    ]


def _delete(worker: Worker, why: str) -> DeletePod:
    return DeletePod(worker.name, worker.pod.uid if worker.pod else "", why)


def _is_in_service(worker: Worker) -> bool:
    return worker.pod is not None and worker.pod.ready and not worker.pod.terminating


def _limit(world: World) -> int:
    return budget.resolve(world.fleet.spec.rollout.max_unavailable, world.fleet.spec.replicas)


# --- the readiness gate and the label of each pod -------------------------------------------------


def _marks(world: World, rollout: Rollout | None) -> list[Action]:
    marks = (_mark(w, rollout) for w in world.workers)
    return [mark for mark in marks if mark is not None]


def _mark(worker: Worker, rollout: Rollout | None) -> MarkPod | None:
    """Return what has to be written on the pod; None while it is right or nobody knows."""
    pod = worker.pod
    if pod is None or pod.terminating or worker.report is None or not worker.reachable:
        return None
    if worker.is_changing and worker.stage is not Stage.DOUBT:
        # Its clients wait at the gate: it stays as routable as it was.
        return None
    ready = worker.is_open and _is_allowed(worker.proved, rollout)
    version = worker.proved if worker.is_open else None
    if pod.weights_ready == ready and pod.version_label == version:
        return None
    return MarkPod(pod.name, pod.uid, ready, version, _mark_message(worker, ready=ready))


def _is_allowed(version: str | None, rollout: Rollout | None) -> bool:
    """Tell whether a proved version may take traffic.

    Until a rollout has completed, workers of every version it replaces go on serving:
    one that gave way to it in the middle has left more than one.
    """
    if rollout is None or not rollout.is_completed:
        return version is not None
    return version == rollout.to


def _mark_message(worker: Worker, *, ready: bool) -> str:
    if ready:
        return f"serves {worker.proved}"
    if worker.report and worker.report.failure:
        return worker.report.failure.message
    if worker.is_open:
        return f"serves {worker.proved}, which the fleet does not ask for"
    return "has not proved the fleet's version"


# --- weights ------------------------------------------------------------------------------------


def _weights(world: World, rollout: Rollout | None) -> list[Action]:
    operation = _operation(rollout)
    actions: list[Action] = []
    serving: list[tuple[Worker, str]] = []
    for worker in world.desired:
        goal = _due(worker, world, rollout)
        if goal is None:
            continue
        if not _is_prepared(worker, goal):
            if _may_call(worker, world):
                actions.append(Prepare(worker.name, goal, operation))
        elif not worker.is_open and _may_call(worker, world):
            actions.append(_update(worker, goal, operation, world))
        if worker.is_open:
            serving.append((worker, goal))
    return actions + _commits(world, serving, operation)


def _due(worker: Worker, world: World, rollout: Rollout | None) -> str | None:
    """Return the version this worker has to change to; None when there is nothing to do."""
    if worker.stage is Stage.DOWN:
        return None
    goal = goal_of(worker, world, rollout)
    if goal is None or (worker.is_open and worker.proved == goal):
        return None
    return None if worker.failed(goal, _operation(rollout)) else goal


def _operation(rollout: Rollout | None) -> str:
    return rollout.operation if rollout else CATCH_UP


def _is_prepared(worker: Worker, version: str) -> bool:
    return worker.report is not None and worker.report.prepared == version


def _may_call(worker: Worker, world: World) -> bool:
    return not worker.is_busy and world.moment >= worker.retry_at


def _commits(world: World, serving: list[tuple[Worker, str]], operation: str) -> list[Action]:
    """Return the next batch of serving workers, once every one of them is prepared.

    A version that failed somewhere and held nowhere waits for the tries under way:
    it must not take a second worker down.
    """
    if any(not _is_prepared(w, goal) for w, goal in serving):
        return []
    doubted = {goal for _, goal in serving if is_doubted(world, goal, operation)}
    changing = sum(w.is_changing for w in world.desired if w.pod is not None and w.pod.ready)
    room = budget.left(_limit(world), changing)
    # Whoever failed to pause before comes last, so that it does not hold up the others.
    ready = sorted(
        ((w, g) for w, g in serving if _may_call(w, world) and g not in doubted),
        key=lambda pair: pair[0].report is not None and pair[0].report.failure is not None,
    )
    return [_update(w, goal, operation, world) for w, goal in ready[:room]]


def _update(worker: Worker, version: str, operation: str, world: World) -> Update:
    return Update(worker.name, version, operation, _peers_proof(worker, version, world))


def _peers_proof(worker: Worker, version: str, world: World) -> Proof | None:
    """Return what a worker of the same template showed of this version.

    It is the lowest ordinal's of those that showed what most did: log probabilities are
    left out, which may differ a little between equals.
    """
    template = worker.pod.template_hash if worker.pod else ""
    proofs = [
        w.report.proof
        for w in world.desired
        if w.proved == version
        and w.report is not None
        and w.report.proof is not None
        and w.pod is not None
        and w.pod.template_hash == template
    ]
    votes = Counter(map(_shown, proofs))
    return max(proofs, key=lambda proof: votes[_shown(proof)], default=None)


def _shown(proof: Proof) -> tuple[str | None, tuple[str, ...], str]:
    return proof.checkpoint, proof.parameters, proof.tokens
