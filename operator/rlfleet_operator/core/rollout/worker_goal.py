"""The version that each worker must serve next."""

from rlfleet_contract.paths import BASE_VERSION
from rlfleet_contract.worker.problems import CHECKPOINT_CODES, Code
from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.rollout.cohorts import kept
from rlfleet_operator.core.rollout.failure_rules import holds
from rlfleet_operator.core.rollout.rollout import Rollout, is_ours, operation_of, served
from rlfleet_operator.core.rollout.trials import waits

_GONE = CHECKPOINT_CODES - {Code.CHECKPOINT_UNREADABLE, Code.CACHE_FULL}
"""Rejections of a version that no longer exists, or not whole; the others may pass."""


def goal_of(worker: Worker, world: World, rollout: Rollout | None) -> str | None:
    """Return the version that this worker must serve next; None to leave it as it is."""
    if rollout is None:
        # A trainer drives the workers, or rollout.dryRun is set: only idle workers change.
        is_driven = worker.is_changing and not (worker.is_left_paused and is_ours(worker, world))
        is_left = worker.is_open or is_driven
        return None if is_left else served(world) or _first(worker, world)
    if rollout.is_stopped:
        is_left = worker.is_settled or worker.failed(rollout.to, rollout.operation)
        return None if is_left else _own(worker, world, rollout) or rollout.fallback or None
    return _goal_in(worker, world, rollout)


def pending_goal(worker: Worker, world: World, rollout: Rollout | None) -> str | None:
    """Return the version that a worker must change to; None if it has it, or cannot change."""
    if worker.stage is Stage.DOWN or worker.is_ending:
        return None
    goal = goal_of(worker, world, rollout)
    if goal is None or (worker.is_settled and worker.proved == goal):
        return None
    return None if worker.failed(goal, operation_of(rollout)) else goal


def waits_for_checkpoint(worker: Worker, goal: str, rollout: Rollout | None) -> bool:
    """Return whether a worker's prepare waits until the version is complete.

    An idle worker with another version to go to does not wait.
    """
    if worker.is_settled or rollout is None:
        return True
    return not rollout.fallback and goal == rollout.to


def _first(worker: Worker, world: World) -> str | None:
    """Return the base version for a fleet in which no worker serves.

    None if another version is requested, or if the worker is in doubt after a trainer's update:
    the trainer did not request older weights.
    """
    is_other_wished = world.fleet.target is not None or worker.stage is Stage.DOUBT
    return None if is_other_wished else BASE_VERSION


def _goal_in(worker: Worker, world: World, rollout: Rollout) -> str | None:
    """Return the goal in a rollout that has not been stopped."""
    if rollout.is_completed:
        return rollout.to
    if worker.ordinal < kept(world):
        is_left = worker.is_settled
        return None if is_left else _own(worker, world, rollout) or _instead(world, rollout)
    if not worker.is_settled and rollout.fallback and waits(worker, world, rollout):
        return rollout.fallback
    return rollout.to


def _own(worker: Worker, world: World, rollout: Rollout) -> str | None:
    """Return the version that a worker below the partition keeps; None if it cannot be had.

    A sidecar forgets the rejection when it prepares another version, which then replaces it.
    """
    if worker.ordinal >= kept(world):
        return None
    refusal = worker.report.refusal if worker.report else None
    is_gone = refusal is not None and refusal.code in _GONE
    if is_gone and worker.refused(rollout.kept, rollout.operation):
        return None
    prepared = worker.report.prepared if worker.report else None
    is_given_up = prepared == _others(rollout) != rollout.kept
    return None if is_given_up else rollout.kept or None


def _instead(world: World, rollout: Rollout) -> str:
    """Return the version of a worker whose own one cannot be had.

    In the first rollout above the partition, all had the same: only the new one is left.
    """
    others = _others(rollout)
    return rollout.to if others == rollout.kept and holds(world, rollout.to) else others


def _others(rollout: Rollout) -> str:
    """Return the version of the workers that changed before."""
    return rollout.fallback or rollout.to
