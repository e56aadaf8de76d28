"""The commands while a trainer pauses the fleet (docs/decisions/0021).

Serving workers pause, and none resumes. Changes of a rollout or of late joiners continue behind
closed gates and end there: proved, but not opened. All workers are out of service already, so
there is no budget; but no second worker loads a version before a first has proved it.
"""

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.actions import Flush, Pause, WeightsCommand
from rlfleet_operator.core.model.commands import is_prepared, may_call, prepare, update
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.rollout.barrier_progress import LOADING
from rlfleet_operator.core.rollout.cohorts import is_eligible, is_suspended
from rlfleet_operator.core.rollout.failure_rules import is_blocked
from rlfleet_operator.core.rollout.rollout import Rollout, operation_of
from rlfleet_operator.core.rollout.trials import must_wait
from rlfleet_operator.core.rollout.worker_goal import pending_goal, waits_for_checkpoint
from rlfleet_operator.crd.fleet_status import TrainerPause
from rlfleet_operator.crd.rollout_spec import Strategy


def in_pause(world: World, rollout: Rollout | None, pause: TrainerPause) -> list[WeightsCommand]:
    """Return the next commands of a fleet that a trainer has paused."""
    goals = {w.name: goal for w in world.desired if (goal := pending_goal(w, world, rollout))}
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


def _chosen(world: World, rollout: Rollout | None, goals: dict[str, str]) -> frozenset[str]:
    """Return the names of the paused workers that may load their goal now."""
    due = [w for w in world.desired if w.is_settled and w.name in goals]
    if rollout is None or is_suspended(world) or is_blocked(world, rollout):
        return frozenset()
    if not all(w.is_kept and is_prepared(w, goals[w.name]) for w in due):
        return frozenset()
    eligible = [w.name for w in due if is_eligible(w, world)]
    return frozenset(eligible[: _at_once(world, rollout)])


def _at_once(world: World, rollout: Rollout) -> int | None:
    """Return how many workers may load the version at once; None if there is no limit."""
    is_barrier = world.fleet.spec.rollout.strategy is Strategy.BARRIER
    if is_barrier or any(w.proved == rollout.to for w in world.desired):
        return None
    is_trying = any(w.is_busy or w.stage in LOADING for w in world.desired)
    return 0 if is_trying else 1


def _change(
    worker: Worker, goal: str, world: World, rollout: Rollout | None, *, is_chosen: bool
) -> list[WeightsCommand]:
    operation = operation_of(rollout)
    if not is_prepared(worker, goal):
        waits = waits_for_checkpoint(worker, goal, rollout)
        return [*prepare(worker, goal, operation, world, waits=waits)]
    if (worker.is_kept and not is_chosen) or must_wait(worker, goal, world, rollout):
        return []
    return [*update(worker, goal, operation, world, Verb.VERIFY)]


def _pause(worker: Worker, pause: TrainerPause, world: World) -> list[WeightsCommand]:
    version = worker.proved or ""
    if not may_call(worker, version, pause.operation, world):
        return []
    return [Pause(worker.name, version, pause.operation, pause.mode, pause.kv_cache)]


def _flush(worker: Worker, pause: TrainerPause, world: World) -> list[WeightsCommand]:
    """Return the requested flush; a worker that has proved a version pauses first."""
    flushed = worker.report.flushed if worker.report else None
    if not pause.flushes or not worker.is_kept or flushed == pause.flush_operation:
        return []
    if worker.stage is Stage.PROVED:
        return _pause(worker, pause, world)
    version = worker.proved or ""
    if not may_call(worker, version, pause.flush_operation, world):
        return []
    return [Flush(worker.name, version, pause.flush_operation)]
