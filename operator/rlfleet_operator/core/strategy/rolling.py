"""Which commands the workers get: prepare everywhere, then change by the fleet's strategy.

Idle workers (new, replaced, restarted) change first: they cost no capacity, and prove a version
before a serving worker pauses for it. trials.py limits how many of them try an unproved version.
Of the serving workers, Rolling and Canary change as many as the budget allows, Barrier all
(barrier.py).
"""

from collections.abc import Sequence

from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.actions import Update, WeightsCommand
from rlfleet_operator.core.model.commands import is_prepared, prepare, resume, update
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.rollout import budget, trials
from rlfleet_operator.core.rollout.barrier_progress import some_serve_target
from rlfleet_operator.core.rollout.cohorts import is_eligible, is_suspended, kept
from rlfleet_operator.core.rollout.failure_rules import has_unknown_outcome, holds, is_blocked
from rlfleet_operator.core.rollout.outage import is_being_replaced, is_returning, may_be_changing
from rlfleet_operator.core.rollout.rollout import Rollout, is_ours, of_record, operation_of
from rlfleet_operator.core.rollout.worker_goal import pending_goal, waits_for_checkpoint
from rlfleet_operator.core.strategy.barrier import barrier
from rlfleet_operator.core.strategy.trainer_pause import in_pause
from rlfleet_operator.crd.rollout_spec import Strategy


def weights(world: World, rollout: Rollout | None) -> list[WeightsCommand]:
    """Return the next commands."""
    if world.pause is not None:
        return in_pause(world, rollout, world.pause)
    if rollout is None:
        busy = _rolling(world, None)
        return [*busy, *_resumes(world, busy)]
    if world.fleet.spec.rollout.strategy is Strategy.BARRIER and rollout.is_active:
        return [*barrier(world, rollout), *_below_partition(world, rollout)]
    actions = _rolling(world, rollout)
    return [*actions, *_releases(world, rollout, rollout.operation, actions)]


def _rolling(world: World, rollout: Rollout | None) -> list[WeightsCommand]:
    left = _left(world, rollout)
    due = [(w, goal) for w in left if (goal := pending_goal(w, world, rollout)) is not None]
    actions = [call for w, goal in due for call in _unbatched(w, goal, world, rollout)]
    if rollout is None:
        return actions
    # While no worker has proved the version, an idle worker tries it first.
    is_first_try = not holds(world, rollout.to) and _tries(actions, rollout)
    serving = [(w, goal) for w, goal in due if _is_batched(w, goal, world, rollout)]
    if is_first_try or not _is_batch_due(world, rollout, serving):
        return actions
    return actions + _batch(world, rollout, serving)


def _below_partition(world: World, rollout: Rollout) -> list[WeightsCommand]:
    """Return the commands of the workers that no Barrier includes: they keep their version."""
    own = [w for w in world.exceptional if w.ordinal < kept(world)]
    due = [(w, goal) for w in own if (goal := pending_goal(w, world, rollout)) is not None]
    actions = [call for w, goal in due for call in _unbatched(w, goal, world, rollout)]
    names = {w.name for w in own}
    left = _releases(world, rollout, rollout.operation, actions)
    return [*actions, *(call for call in left if call.worker in names)]


def _left(world: World, rollout: Rollout | None) -> Sequence[Worker]:
    """Return the workers without those that have their goal already."""
    if rollout is None or rollout.is_stopped:
        return world.exceptional
    return [w for w in world.desired if not w.is_plain or w.proved != rollout.to]


def _unbatched(
    worker: Worker, goal: str, world: World, rollout: Rollout | None
) -> list[WeightsCommand]:
    """Return the command that costs no capacity: a prepare, or the change of an idle worker."""
    operation = operation_of(rollout)
    if not is_prepared(worker, goal):
        waits = waits_for_checkpoint(worker, goal, rollout)
        return [*prepare(worker, goal, operation, world, waits=waits)]
    if _has_served(worker, goal, world, rollout) or trials.must_wait(worker, goal, world, rollout):
        return []
    return [*update(worker, goal, operation, world)]


def _is_batched(worker: Worker, goal: str, world: World, rollout: Rollout) -> bool:
    """Return whether a worker changes in a batch: it serves, or is paused and prepared."""
    is_served = _has_served(worker, goal, world, rollout)
    return worker.is_open or (is_served and is_prepared(worker, goal))


def _tries(actions: list[WeightsCommand], rollout: Rollout) -> bool:
    return any(isinstance(a, Update) and a.version == rollout.to for a in actions)


def _has_served(worker: Worker, goal: str, world: World, rollout: Rollout | None) -> bool:
    """Return whether a worker serves, or is paused with, another version than its goal.

    A paused worker has waiting clients and a version to resume with, so it counts as serving,
    whether a trainer or a failed change paused it.
    """
    is_paused = worker.stage in {Stage.PAUSED, Stage.PROVED} and worker.proved not in {None, goal}
    is_resumable = is_paused and not worker.is_busy and not _must_go_back(worker, world, rollout)
    return worker.is_open or is_resumable


def _must_go_back(worker: Worker, world: World, rollout: Rollout | None) -> bool:
    """Return whether a worker proved, behind a closed gate, a version that no worker serves.

    Its rollout was stopped: neither it nor another has answered with that version.
    """
    if worker.stage is not Stage.PROVED or rollout is None or not rollout.is_stopped:
        return False
    return worker.proved == rollout.to and not some_serve_target(world, rollout)


def _is_batch_due(world: World, rollout: Rollout, serving: Sequence[tuple[Worker, str]]) -> bool:
    """Return whether the next batch may be taken out: every serving worker is prepared.

    A version that failed waits until other workers finish to load it, and an unproved one until
    all workers have reported: it must not take another worker down.
    """
    if any(not is_prepared(w, goal) for w, goal in serving):
        return False
    if is_suspended(world) or is_blocked(world, rollout) or has_unknown_outcome(world, rollout):
        return False
    # A busy worker in doubt may report that the version failed.
    return not any(w.stage is Stage.DOUBT and w.is_busy for w in world.exceptional)


def _batch(
    world: World, rollout: Rollout, serving: Sequence[tuple[Worker, str]]
) -> list[WeightsCommand]:
    """Return the next batch of serving workers, as large as the budget allows."""
    out = sum(_counts_for_batch(w, world, rollout) for w in world.exceptional)
    limit = budget.max_unavailable(world.fleet.spec)
    # A worker that failed to pause before comes last, so that it does not delay the others.
    due = sorted(
        (pair for pair in serving if is_eligible(pair[0], world)),
        key=lambda pair: pair[0].failure is not None,
    )
    # An idle paused worker is out of service already: its change costs nothing.
    paused = [pair for pair in due if not pair[0].is_open]
    idle = sum(may_be_changing(worker) for worker, _ in paused)
    first = _updates(paused, rollout.operation, world)[: budget.left(limit, out - idle)]
    rest = _updates([pair for pair in due if pair[0].is_open], rollout.operation, world)
    return [*first, *rest[: budget.left(limit, max(out, out - idle + len(first)))]]


def _counts_for_batch(worker: Worker, world: World, rollout: Rollout) -> bool:
    """Return whether a worker is or may be out of service, and is expected back."""
    if may_be_changing(worker) or is_being_replaced(worker, world):
        return True
    return is_returning(worker, rollout.to, world)


def _updates(due: list[tuple[Worker, str]], operation: str, world: World) -> list[WeightsCommand]:
    return [call for worker, goal in due for call in update(worker, goal, operation, world)]


def _resumes(world: World, others: Sequence[WeightsCommand]) -> list[WeightsCommand]:
    """Return the commands that resume workers after a trainer's pause or a cancelled rollout.

    A rollout is cancelled when its version leaves the spec. Workers that a trainer paused at their
    sidecars stay paused.
    """
    ended, recorded = world.fleet.status.trainer_pause, world.fleet.status.rollout
    if ended is not None:
        return _releases(world, None, ended.operation, others)
    operation = operation_of(None if recorded is None else of_record(recorded))
    # An earlier rollout counts too: the last one may have sent no command yet.
    left = {w.name for w in world.desired if is_ours(w, world)}
    return [c for c in _releases(world, None, operation, others) if c.worker in left]


def _releases(
    world: World, rollout: Rollout | None, operation: str, others: Sequence[WeightsCommand]
) -> list[WeightsCommand]:
    """Return the commands that resume paused workers without other commands."""
    busy = {command.worker for command in others}
    stranded = [
        w
        for w in world.exceptional
        if w.name not in busy
        and (w.stage is Stage.PAUSED or (w.stage is Stage.PROVED and _is_left(w, world, rollout)))
    ]
    return [call for w in stranded for call in resume(w, operation, world)]


def _is_left(worker: Worker, world: World, rollout: Rollout | None) -> bool:
    """Return whether a worker that has proved a version has no other goal now."""
    goal = pending_goal(worker, world, rollout)
    return goal is None or (worker.proved != goal and not _must_go_back(worker, world, rollout))
