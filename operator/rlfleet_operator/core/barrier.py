"""The strategy Barrier: all pause, all reload and prove, all resume."""

from rlfleet_contract.models import Stage, Verb
from rlfleet_operator.core.actions import Command
from rlfleet_operator.core.barrier_state import awaited, has_begun, is_through_with_some, team
from rlfleet_operator.core.calls import is_able, prepare, resume, update
from rlfleet_operator.core.failure import is_blocked
from rlfleet_operator.core.goals import goal_of
from rlfleet_operator.core.rollout import Reason, Rollout
from rlfleet_operator.core.selection import is_held
from rlfleet_operator.core.world import Worker, World


def barrier(world: World, rollout: Rollout) -> list[Command]:
    """Return the next commands of a rollout that changes all workers together."""
    members = team(world, rollout)
    fallen = [w for w in members if _falls_back(w, world, rollout)]
    members = [w for w in members if w not in fallen]
    backwards = [a for w in fallen for a in _alone(w, world, rollout, rollout.fallback)]
    return [*backwards, *_together(world, rollout, members)]


def _falls_back(worker: Worker, world: World, rollout: Rollout) -> bool:
    """Tell whether a worker that serves nothing shall not wait for what it cannot have."""
    is_out = worker.stage in {Stage.CLOSED, Stage.DOUBT, Stage.PAUSED} and worker.proved is None
    return is_out and goal_of(worker, world, rollout) != rollout.to


def _together(world: World, rollout: Rollout, members: list[Worker]) -> list[Command]:
    if has_begun(world, rollout):
        return _go_on(world, rollout, members)
    if is_through_with_some(world, rollout):
        # Whoever is left has come late.
        return [a for w in members for a in _alone(w, world, rollout, rollout.to)]
    return _gather(world, rollout, members)


def _gather(world: World, rollout: Rollout, members: list[Worker]) -> list[Command]:
    """Prepare all, then pause all, then let all load."""
    unprepared = [w for w in members if not is_able(w, rollout.to)]
    if unprepared or is_held(world) or is_blocked(world, rollout):
        # Nobody waits behind a closed gate for a checkpoint or for a person.
        waiting = [w for w in members if _may_go_back(w, rollout)]
        return [
            *(c for w in unprepared for c in prepare(w, rollout.to, rollout.operation, world)),
            *(c for w in waiting for c in resume(w, rollout.operation, world)),
        ]
    there = [w for w in members if w.proved == rollout.to]
    if there:
        # They were paused for another version: their gates are all that is left to do.
        return [c for w in there for c in _alone(w, world, rollout, rollout.to)]
    # Paused is written down before the engine has paused: who is still at it does not count.
    unpaused = [w for w in members if w.is_busy or w.stage in {Stage.OPEN, Stage.PROVED}]
    through = Verb.PAUSE if unpaused else Verb.VERIFY
    return [
        call
        for w in unpaused or members
        for call in update(w, rollout.to, rollout.operation, world, through)
    ]


def _may_go_back(worker: Worker, rollout: Rollout) -> bool:
    """Tell whether a worker behind a closed gate shall serve what it has proved meanwhile.

    One that has proved the version which is rolled back shall not, if the old one can be had.
    """
    if worker.stage is not Stage.PROVED:
        return worker.stage is Stage.PAUSED
    is_refused = worker.refused(rollout.to, rollout.operation)
    return rollout.reason is not Reason.ROLLBACK or is_refused


def _go_on(world: World, rollout: Rollout, members: list[Worker]) -> list[Command]:
    """Load the rest of those that paused, and open no gate before all have proved."""
    waits_for = awaited(world, rollout)
    if waits_for:
        led = [w for w in members if w in waits_for or w.stage is Stage.PAUSED]
        return [a for w in led for a in _forward(w, world, rollout)]
    return [a for w in members for a in _alone(w, world, rollout, rollout.to)]


def _forward(worker: Worker, world: World, rollout: Rollout) -> list[Command]:
    if not is_able(worker, rollout.to):
        # Without a cache a sidecar that was restarted has to read it again.
        return [*prepare(worker, rollout.to, rollout.operation, world, is_bound=True)]
    return [*update(worker, rollout.to, rollout.operation, world, Verb.VERIFY)]


def _alone(worker: Worker, world: World, rollout: Rollout, version: str) -> list[Command]:
    if not is_able(worker, version):
        return [*prepare(worker, version, rollout.operation, world, is_bound=True)]
    return [*update(worker, version, rollout.operation, world)]
