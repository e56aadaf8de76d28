"""Which workers that serve nothing may load the version of a rollout, and which wait.

A worker that serves nothing costs no capacity, so it is the cheapest try of a new version.
But a version that holds nowhere may be bad, and a worker that fails on it stays out of
service: it takes at most maxUnavailable of them at a time, and none once it is known to be
bad. The others serve the old version until then, if there is one (worker_goal.py).
"""

from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.rollout import budget
from rlfleet_operator.core.rollout.cohorts import is_eligible, selected
from rlfleet_operator.core.rollout.failure_rules import holds, is_condemned, is_expected
from rlfleet_operator.core.rollout.rollout import REFUSED, Rollout
from rlfleet_operator.crd.rollout_spec import Strategy

_OUT = frozenset({Stage.CLOSED, Stage.DOUBT})


def waits(worker: Worker, world: World, rollout: Rollout) -> bool:
    """Return whether a worker that serves nothing serves the old version first."""
    return (
        _is_held_back(worker, world)
        or _is_refused(worker, world, rollout)
        or worker.name in waiting(world, rollout)
    )


def must_wait(worker: Worker, goal: str, world: World, rollout: Rollout | None) -> bool:
    """Return whether a worker must not load its goal before it has proved on another."""
    return rollout is not None and goal == rollout.to and worker.name in waiting(world, rollout)


def waiting(world: World, rollout: Rollout) -> frozenset[str]:
    """Return the workers that serve nothing and must not load the rollout's version yet."""
    key = ("waiting", rollout)
    if key not in world.memo:
        world.memo[key] = _waiting(world, rollout)
    found: frozenset[str] = world.memo[key]
    return found


def _waiting(world: World, rollout: Rollout) -> frozenset[str]:
    if not rollout.is_active:
        return frozenset()
    due = [w for w in selected(world) if _is_due(w, world, rollout)]
    if is_condemned(world, rollout):
        return frozenset(w.name for w in due)
    rules = world.fleet.spec.rollout
    if holds(world, rollout.to) or rules.strategy is Strategy.BARRIER:
        # A Barrier changes all of them together, whatever they serve.
        return frozenset()
    trying = sum(_is_trying(w, rollout) for w in world.desired)
    limit = budget.max_unavailable(world.fleet.spec)
    due.sort(key=lambda worker: _place(worker, rollout))
    return frozenset(w.name for w in due[budget.left(limit, trying) :])


def _is_trying(worker: Worker, rollout: Rollout) -> bool:
    """Return whether a worker loads something, or does once its engine is back."""
    is_back = worker.stage is not Stage.DOWN and not worker.is_ending
    if is_expected(worker, rollout) and not is_back:
        return True
    return worker.proved is None and (worker.is_changing or worker.is_busy)


def _place(worker: Worker, rollout: Rollout) -> tuple[bool, bool, int]:
    """Order workers by when they are tried.

    First one on which it was tried before, last one that failed on its way: it holds up no other.
    """
    has_tried = worker.exits(rollout.to, rollout.operation) > 0
    return not has_tried, worker.failure is not None, worker.ordinal


def _is_due(worker: Worker, world: World, rollout: Rollout) -> bool:
    """Return whether a worker that serves nothing would load the version now."""
    is_out = worker.stage in _OUT and worker.proved is None and not worker.is_busy
    return (
        is_out
        and not worker.is_ending
        and not worker.failed(rollout.to, rollout.operation)
        and not _is_held_back(worker, world)
        and not _is_refused(worker, world, rollout)
    )


def _is_held_back(worker: Worker, world: World) -> bool:
    """Return whether only those that change already may have the new version yet."""
    if worker.is_changing:
        return False
    if world.fleet.spec.rollout.paused:
        return True
    return not is_eligible(worker, world)


def _is_refused(worker: Worker, world: World, rollout: Rollout) -> bool:
    """Return whether a worker's checkpoint of the new version was refused.

    Its refusal is forgotten when it prepares the older version, so the recorded
    phase stands for it until the change has begun.
    """
    recorded = world.fleet.status.rollout
    is_recorded = recorded is not None and recorded.phase == REFUSED
    is_prepared = worker.report is not None and worker.report.prepared == rollout.fallback
    return worker.refused(rollout.to, rollout.operation) or (is_recorded and is_prepared)
