"""Which idle workers may load a rollout's version, and which must wait.

An idle worker serves nothing and costs no capacity, so it tries a new version first. But a
version that no worker has proved may be bad, and a worker that fails on it stays out of service.
So at most maxUnavailable of them try it at a time, and none once it has failed. The others load
the old version first, if there is one (worker_goal.py).
"""

from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.rollout import budget
from rlfleet_operator.core.rollout.cohorts import exceptional, has_begun_empty, is_eligible
from rlfleet_operator.core.rollout.failure_rules import holds, is_expected, must_stop
from rlfleet_operator.core.rollout.rollout import REFUSED, Rollout
from rlfleet_operator.crd.rollout_spec import Strategy

_OUT = frozenset({Stage.CLOSED, Stage.DOUBT})


def waits(worker: Worker, world: World, rollout: Rollout) -> bool:
    """Return whether an idle worker must load the old version first."""
    if _is_held_back(worker, world) or _is_refused(worker, world, rollout):
        return True
    # In a fleet that was empty no client waits for the old version.
    return not has_begun_empty(world) and worker.name in waiting(world, rollout)


def must_wait(worker: Worker, goal: str, world: World, rollout: Rollout | None) -> bool:
    """Return whether a worker must not load its goal before another worker has proved it."""
    return rollout is not None and goal == rollout.to and worker.name in waiting(world, rollout)


def waiting(world: World, rollout: Rollout) -> frozenset[str]:
    """Return the idle workers that must not load the rollout's version yet."""
    key = ("waiting", rollout)
    if key not in world.memo:
        world.memo[key] = _waiting(world, rollout)
    found: frozenset[str] = world.memo[key]
    return found


def _waiting(world: World, rollout: Rollout) -> frozenset[str]:
    if not rollout.is_active:
        return frozenset()
    due = [w for w in exceptional(world) if _is_due(w, world, rollout)]
    if must_stop(world, rollout):
        return frozenset(w.name for w in due)
    rules = world.fleet.spec.rollout
    if holds(world, rollout.to) or rules.strategy is Strategy.BARRIER:
        # A Barrier changes all workers together, idle or not.
        return frozenset()
    trying = sum(_is_trying(w, rollout) for w in world.exceptional)
    limit = budget.max_unavailable(world.fleet.spec)
    due.sort(key=lambda worker: _place(worker, rollout))
    return frozenset(w.name for w in due[budget.left(limit, trying) :])


def _is_trying(worker: Worker, rollout: Rollout) -> bool:
    """Return whether a worker loads a version, or will once its engine is up again."""
    is_back = worker.stage is not Stage.DOWN and not worker.is_ending
    if is_expected(worker, rollout) and not is_back:
        return True
    return worker.proved is None and (worker.is_changing or worker.is_busy)


def _place(worker: Worker, rollout: Rollout) -> tuple[bool, bool, int]:
    """Return the sort key of the order in which workers try the version.

    A worker that tried it before comes first; one that failed before its reload comes last, so
    that it delays no other.
    """
    has_tried = worker.exits(rollout.to, rollout.operation) > 0
    return not has_tried, worker.failure is not None, worker.ordinal


def _is_due(worker: Worker, world: World, rollout: Rollout) -> bool:
    """Return whether an idle worker would load the version now."""
    is_out = worker.stage in _OUT and worker.proved is None and not worker.is_busy
    return (
        is_out
        and not worker.is_ending
        and not worker.failed(rollout.to, rollout.operation)
        and not _is_held_back(worker, world)
        and not _is_refused(worker, world, rollout)
    )


def _is_held_back(worker: Worker, world: World) -> bool:
    """Return whether a pause or the canaries keep a worker from the new version."""
    if worker.is_changing:
        return False
    if world.fleet.spec.rollout.paused:
        return True
    return not is_eligible(worker, world)


def _is_refused(worker: Worker, world: World, rollout: Rollout) -> bool:
    """Return whether a worker rejected the checkpoint of the new version.

    A sidecar forgets the rejection when it prepares the older version, so the recorded phase
    replaces it until the change has begun.
    """
    recorded = world.fleet.status.rollout
    is_recorded = recorded is not None and recorded.phase == REFUSED
    is_prepared = worker.report is not None and worker.report.prepared == rollout.fallback
    return worker.refused(rollout.to, rollout.operation) or (is_recorded and is_prepared)
