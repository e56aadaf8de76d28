"""What is asked of workers while their trainer has paused the fleet (docs/decisions/0021).

Whoever serves pauses, and nobody is resumed. What a rollout or a late joiner asks for goes on
behind the closed gates and ends there: proved, and not opened. Everybody is out already, so
the budget says nothing; but no version takes a second worker before it held on a first.
"""

from rlfleet_contract.commands import Verb
from rlfleet_contract.report import Stage
from rlfleet_operator.core.model.actions import Flush, Pause, WeightsCommand
from rlfleet_operator.core.model.commands import CATCH_UP, is_prepared, may_call, prepare, update
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.rollout.cohorts import is_canary, is_held, is_promoted
from rlfleet_operator.core.rollout.failure_rules import is_blocked
from rlfleet_operator.core.rollout.rollout import Rollout
from rlfleet_operator.core.rollout.trials import waiting
from rlfleet_operator.core.rollout.worker_goal import goal_of
from rlfleet_operator.crd.fleet_status import TrainerPause
from rlfleet_operator.crd.rollout_spec import Strategy

_LOADING = frozenset({Stage.LOADING, Stage.LOADED})


def held(world: World, rollout: Rollout | None, pause: TrainerPause) -> list[WeightsCommand]:
    """Return the next commands of a fleet that its trainer has paused."""
    goals = {w.name: goal for w in world.desired if (goal := _due(w, world, rollout))}
    chosen = _chosen(world, rollout, goals)
    found: list[WeightsCommand] = []
    for worker in world.desired:
        goal = goals.get(worker.name)
        calls = _pause(worker, pause, world) if worker.is_open else []
        if not worker.is_open and (goal is None or _is_refused(worker, goal, rollout)):
            calls = _flush(worker, pause, world)
        if not worker.is_open and goal is not None and not calls:
            calls = _change(worker, goal, world, rollout, is_chosen=worker.name in chosen)
        found += calls
    return found


def _is_refused(worker: Worker, goal: str, rollout: Rollout | None) -> bool:
    return rollout is not None and worker.refused(goal, rollout.operation)


def _due(worker: Worker, world: World, rollout: Rollout | None) -> str | None:
    """Return the version that a worker has to change to; None when there is nothing to do."""
    if worker.stage is Stage.DOWN or worker.is_ending:
        return None
    goal = goal_of(worker, world, rollout)
    operation = rollout.operation if rollout else CATCH_UP
    if goal is None or (worker.is_settled and worker.proved == goal):
        return None
    return None if worker.failed(goal, operation) else goal


def _chosen(world: World, rollout: Rollout | None, goals: dict[str, str]) -> frozenset[str]:
    """Return who of those that have something to go on with may load now."""
    due = [w for w in world.desired if w.is_settled and w.name in goals]
    if rollout is None or is_held(world) or is_blocked(world, rollout):
        return frozenset()
    if not all(w.is_kept and is_prepared(w, goals[w.name]) for w in due):
        return frozenset()
    is_open_to_all = is_promoted(world)
    chosen = [w for w in due if is_open_to_all or is_canary(w, world)]
    is_tried = world.fleet.spec.rollout.strategy is Strategy.BARRIER or any(
        w.proved == rollout.to for w in world.desired
    )
    if not is_tried:
        is_trying = any(w.is_busy or w.stage in _LOADING for w in world.desired)
        chosen = [] if is_trying else chosen[:1]
    return frozenset(w.name for w in chosen)


def _change(
    worker: Worker, goal: str, world: World, rollout: Rollout | None, *, is_chosen: bool
) -> list[WeightsCommand]:
    operation = rollout.operation if rollout else CATCH_UP
    if not is_prepared(worker, goal):
        waits = worker.is_kept or rollout is None or not rollout.fallback
        return [*prepare(worker, goal, operation, world, waits=waits)]
    if worker.is_kept and not is_chosen:
        return []
    if rollout is not None and goal == rollout.to and worker.name in waiting(world, rollout):
        return []
    return [*update(worker, goal, operation, world, Verb.VERIFY)]


def _pause(worker: Worker, pause: TrainerPause, world: World) -> list[WeightsCommand]:
    version = worker.proved or ""
    if not may_call(worker, version, pause.operation, world):
        return []
    return [Pause(worker.name, version, pause.operation, pause.mode, pause.kv_cache)]


def _flush(worker: Worker, pause: TrainerPause, world: World) -> list[WeightsCommand]:
    """Return the flush that was asked for; one that has proved is paused first."""
    flushed = worker.report.flushed if worker.report else None
    if not pause.flushes or not worker.is_kept or flushed == pause.flush_operation:
        return []
    if worker.stage is Stage.PROVED:
        return _pause(worker, pause, world)
    version = worker.proved or ""
    if not may_call(worker, version, pause.flush_operation, world):
        return []
    return [Flush(worker.name, version, pause.flush_operation)]
