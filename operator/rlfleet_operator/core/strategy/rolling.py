"""Which commands the workers get: prepare everywhere, then commit by the fleet's strategy.

A worker that serves nothing (new, replaced, restarted) changes before the others: it costs
no capacity, and proves a version before a worker that serves is paused for it; trials.py
bounds how many of them try one that holds nowhere. Of the others, Rolling and Canary take as
many as the budget allows; Barrier takes all (barrier.py).
"""

from collections.abc import Sequence

from rlfleet_contract.report import Stage
from rlfleet_operator.core.model.actions import Update, WeightsCommand
from rlfleet_operator.core.model.commands import CATCH_UP, is_prepared, prepare, resume, update
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.rollout import budget, trials
from rlfleet_operator.core.rollout.cohorts import is_canary, is_held, is_promoted
from rlfleet_operator.core.rollout.failure_rules import holds, is_blocked, is_unheard
from rlfleet_operator.core.rollout.outage import is_being_replaced, may_be_changing
from rlfleet_operator.core.rollout.rollout import Rollout, is_of_rollout, of_record
from rlfleet_operator.core.rollout.worker_goal import goal_of
from rlfleet_operator.core.strategy.barrier import barrier
from rlfleet_operator.core.strategy.trainer_pause import held
from rlfleet_operator.crd.rollout_spec import Strategy


def weights(world: World, rollout: Rollout | None) -> list[WeightsCommand]:
    """Return the next commands."""
    if world.pause is not None:
        return held(world, rollout, world.pause)
    if rollout is None:
        busy = _rolling(world, None)
        return [*busy, *_let_go(world, busy)]
    if world.fleet.spec.rollout.strategy is Strategy.BARRIER and rollout.is_active:
        return barrier(world, rollout)
    actions = _rolling(world, rollout)
    return [*actions, *_releases(world, rollout, rollout.operation, actions)]


def _rolling(world: World, rollout: Rollout | None) -> list[WeightsCommand]:
    operation = rollout.operation if rollout else CATCH_UP
    waiting = frozenset[str]() if rollout is None else trials.waiting(world, rollout)
    actions: list[WeightsCommand] = []
    serving: list[tuple[Worker, str]] = []
    for worker in world.desired:
        goal = _due(worker, world, rollout)
        if goal is None:
            continue
        if not is_prepared(worker, goal):
            # One that serves nothing and has something to fall back on must not wait.
            waits = worker.is_open or rollout is None or not rollout.fallback
            actions += prepare(worker, goal, operation, world, waits=waits)
        elif not _has_served(worker, goal) and (
            worker.name not in waiting or _is_old(goal, rollout)
        ):
            actions += update(worker, goal, operation, world)
        if worker.is_open or (_has_served(worker, goal) and is_prepared(worker, goal)):
            serving.append((worker, goal))
    if rollout is not None and not holds(world, rollout.to) and _tries(actions, rollout):
        # The version holds nowhere: a worker that serves nothing proves it first.
        return actions
    return actions + _batch(world, rollout, serving, operation)


def _tries(actions: list[WeightsCommand], rollout: Rollout) -> bool:
    return any(isinstance(a, Update) and a.version == rollout.to for a in actions)


def _has_served(worker: Worker, goal: str) -> bool:
    """Tell whether a worker serves, or waits behind its gate with, another version than its goal.

    A worker that is paused has clients that wait, and its version to go back to: it counts as
    serving, whether a trainer paused it at its sidecar or a change of ours that came to nothing.
    """
    is_paused = worker.stage in {Stage.PAUSED, Stage.PROVED} and worker.proved not in {None, goal}
    return worker.is_open or (is_paused and not worker.is_busy)


def _is_old(goal: str, rollout: Rollout | None) -> bool:
    return rollout is not None and goal != rollout.to


def _due(worker: Worker, world: World, rollout: Rollout | None) -> str | None:
    """Return the version this worker has to change to; None when there is nothing to do."""
    if worker.stage is Stage.DOWN or worker.is_ending:
        return None
    goal = goal_of(worker, world, rollout)
    if goal is None or (worker.is_open and worker.proved == goal):
        return None
    operation = rollout.operation if rollout else CATCH_UP
    return None if worker.failed(goal, operation) else goal


def _batch(
    world: World, rollout: Rollout | None, serving: list[tuple[Worker, str]], operation: str
) -> list[WeightsCommand]:
    """Return the next batch of serving workers, once every one of them is prepared.

    A version that is doubted waits for the tries under way, and one that holds nowhere for
    whoever has not told: it must not take another worker down.
    """
    if rollout is None or any(not is_prepared(w, goal) for w, goal in serving):
        return []
    if is_held(world) or is_blocked(world, rollout) or is_unheard(world, rollout):
        return []
    if any(w.stage is Stage.DOUBT and w.is_busy for w in world.desired):
        # It takes no traffic any more, and what it will say may speak against the version.
        return []
    spec = world.fleet.spec
    out = sum(may_be_changing(w) or is_being_replaced(w, world) for w in world.desired)
    limit = budget.resolve(spec.rollout.max_unavailable, spec.replicas)
    is_open_to_all = is_promoted(world)
    # Whoever failed to pause before comes last, so that it does not hold up the others.
    due = sorted(
        (pair for pair in serving if is_open_to_all or is_canary(pair[0], world)),
        key=lambda pair: pair[0].report is not None and pair[0].report.failure is not None,
    )
    # One that is paused and asked nothing is out already: to change it costs no more.
    paused = [pair for pair in due if not pair[0].is_open]
    idle = sum(may_be_changing(worker) for worker, _ in paused)
    first = _updates(paused, operation, world)[: budget.left(limit, out - idle)]
    rest = _updates([pair for pair in due if pair[0].is_open], operation, world)
    return [*first, *rest[: budget.left(limit, max(out, out - idle + len(first)))]]


def _updates(due: list[tuple[Worker, str]], operation: str, world: World) -> list[WeightsCommand]:
    return [call for worker, goal in due for call in update(worker, goal, operation, world)]


def _let_go(world: World, others: Sequence[WeightsCommand]) -> list[WeightsCommand]:
    """Return the way out of what was asked for, and is no more: a trainer's pause, a version.

    A version leaves the spec in the middle of a Barrier, and nobody goes on with it; whom a
    trainer has paused at its sidecar is the trainer's.
    """
    ended, recorded = world.fleet.status.trainer_pause, world.fleet.status.rollout
    if ended is not None:
        return _releases(world, None, ended.operation, others)
    if recorded is None:
        return []
    operation = of_record(recorded).operation
    # Also of an earlier one: the last may have had no time to command anybody.
    left = {w.name for w in world.desired if w.report and is_of_rollout(w.report.operation)}
    return [c for c in _releases(world, None, operation, others) if c.worker in left]


def _releases(
    world: World, rollout: Rollout | None, operation: str, others: Sequence[WeightsCommand]
) -> list[WeightsCommand]:
    """Return the way out for workers that nobody goes on with: they serve what they proved."""
    busy = {command.worker for command in others}
    stranded = [
        w
        for w in world.desired
        if w.name not in busy
        and (w.stage is Stage.PAUSED or (w.stage is Stage.PROVED and _is_left(w, world, rollout)))
    ]
    return [call for w in stranded for call in resume(w, operation, world)]


def _is_left(worker: Worker, world: World, rollout: Rollout | None) -> bool:
    """Tell whether a worker that has proved a version is led to no other now."""
    goal = _due(worker, world, rollout)
    return goal is None or worker.proved != goal
