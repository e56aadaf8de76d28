"""The strategy Barrier: all pause, all reload and prove, all resume."""

from collections.abc import Iterable

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.actions import WeightsCommand
from rlfleet_operator.core.model.commands import is_able, prepare, resume, update
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.rollout.barrier_progress import (
    awaited,
    has_begun,
    is_gathering,
    some_serve_target,
    team,
)
from rlfleet_operator.core.rollout.cohorts import is_suspended
from rlfleet_operator.core.rollout.failure_rules import must_stop
from rlfleet_operator.core.rollout.rollout import Reason, Rollout, of_record
from rlfleet_operator.core.rollout.worker_goal import goal_of
from rlfleet_operator.crd.rollout_spec import Strategy


def barrier(world: World, rollout: Rollout) -> list[WeightsCommand]:
    """Return the next commands of a rollout that changes all workers together."""
    members = _members(world, rollout)
    names = {w.name for w in members}
    fallen = [w for w in team(world, rollout) if w.name not in names]
    backwards = _change(fallen, rollout.fallback, world, rollout)
    return [*backwards, *_together(world, rollout, members)]


def closes(world: World) -> bool:
    """Return whether a Barrier closes gates, or would if no adapter were being loaded."""
    recorded, rules = world.fleet.status.rollout, world.fleet.spec.rollout
    if recorded is None or world.fleet.target is None or rules.strategy is not Strategy.BARRIER:
        return False
    rollout = of_record(recorded)
    if not rollout.is_active or some_serve_target(world, rollout):
        return False
    members = _members(world, rollout)
    may_close = bool(members) and _may_close(world, rollout, members)
    return may_close or has_begun(world, rollout)


def _members(world: World, rollout: Rollout) -> list[Worker]:
    return [w for w in team(world, rollout) if not _falls_back(w, world, rollout)]


def _falls_back(worker: Worker, world: World, rollout: Rollout) -> bool:
    """Return whether an idle worker must load another version than the rollout's."""
    is_out = worker.stage in {Stage.CLOSED, Stage.DOUBT, Stage.PAUSED} and worker.proved is None
    if not is_out:
        return False
    has_way_back = worker.is_left_paused and bool(rollout.fallback)
    if has_way_back and world.fleet.spec.rollout.paused and is_gathering(world, rollout):
        return True  # The hold would keep it paused.
    return goal_of(worker, world, rollout) != rollout.to


def _together(world: World, rollout: Rollout, members: list[Worker]) -> list[WeightsCommand]:
    if has_begun(world, rollout):
        return _load_all(world, rollout, members)
    if some_serve_target(world, rollout):
        # The remaining workers joined late.
        late = [w for w in members if not (w.is_open and is_suspended(world))]
        return _change(late, rollout.to, world, rollout)
    return _gather(world, rollout, members)


def _gather(world: World, rollout: Rollout, members: list[Worker]) -> list[WeightsCommand]:
    """Return the commands that prepare all workers, then pause all, then load all."""
    if not _may_close(world, rollout, members) or any(w.is_adapting for w in members):
        return _prepare(world, rollout, members)
    proved = [w for w in members if w.proved == rollout.to]
    if proved:
        # They were paused for another version: only their gates must open.
        return _change(proved, rollout.to, world, rollout)
    # A sidecar records Paused before the engine has paused, so busy workers are not paused yet.
    unpaused = [w for w in members if w.is_busy or w.stage in {Stage.OPEN, Stage.PROVED}]
    if unpaused:
        return _change(unpaused, rollout.to, world, rollout, Verb.PAUSE)
    return _change(members, rollout.to, world, rollout, Verb.VERIFY)


def _prepare(world: World, rollout: Rollout, members: list[Worker]) -> list[WeightsCommand]:
    """Return the commands that prepare all workers with open gates."""
    waiting = [w for w in members if _may_go_back(w, rollout)]
    resumes = [call for w in waiting for call in resume(w, rollout.operation, world)]
    # One that has proved another version could prepare at once, but its clients wait.
    resuming = {call.worker for call in resumes}
    left = [w for w in members if w.name not in resuming and not is_able(w, rollout.to)]
    prepares = [c for w in left for c in prepare(w, rollout.to, rollout.operation, world)]
    return [*prepares, *resumes]


def _may_close(world: World, rollout: Rollout, members: list[Worker]) -> bool:
    is_each_able = all(is_able(w, rollout.to) for w in members)
    return is_each_able and not is_suspended(world) and not must_stop(world, rollout)


def _may_go_back(worker: Worker, rollout: Rollout) -> bool:
    """Return whether a worker behind a closed gate may resume with the version that it proved.

    A worker that has proved the version to roll back must not, unless it rejects the old one.
    """
    if worker.stage is not Stage.PROVED:
        return worker.stage is Stage.PAUSED
    is_refused = worker.refused(rollout.to, rollout.operation)
    return rollout.reason is not Reason.ROLLBACK or is_refused


def _load_all(world: World, rollout: Rollout, members: list[Worker]) -> list[WeightsCommand]:
    """Return the commands that load the paused workers, and open gates once all have proved.

    Gates stay closed if the version must be rolled back.
    """
    waits_for = {w.name for w in awaited(world, rollout)}
    if waits_for or must_stop(world, rollout):
        led = [w for w in members if w.name in waits_for or w.stage is Stage.PAUSED]
        return _change(led, rollout.to, world, rollout, Verb.VERIFY)
    return _change(members, rollout.to, world, rollout)


def _change(
    some: Iterable[Worker],
    version: str,
    world: World,
    rollout: Rollout,
    through: Verb = Verb.RESUME,
) -> list[WeightsCommand]:
    """Return the next command of each worker towards a version, up to the step ``through``.

    Without a cache, a restarted sidecar must prepare the version again.
    """
    found: list[WeightsCommand] = []
    for worker in some:
        if is_able(worker, version):
            found += update(worker, version, rollout.operation, world, through)
        else:
            found += prepare(worker, version, rollout.operation, world, is_bound=True)
    return found
