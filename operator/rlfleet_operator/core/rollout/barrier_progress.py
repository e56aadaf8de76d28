"""The progress of a Barrier, computed from the workers' reports.

All workers pause, all reload and prove, all resume. Until the first worker begins to load, every
worker can return to the old version; from then on the Barrier must complete.
"""

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.rollout.cohorts import selected
from rlfleet_operator.core.rollout.rollout import Rollout

LOADING = frozenset({Stage.LOADING, Stage.LOADED})
"""The stages from the start of a reload to its proof."""


def team(world: World, rollout: Rollout) -> list[Worker]:
    """Return the workers that change together: those that answer and have not failed."""
    return [
        w
        for w in selected(world)
        if w.is_live
        and w.stage is not Stage.DOWN
        and not w.is_ending
        and not w.failed(rollout.to, rollout.operation)
        and not serves_target(w, rollout)
    ]


def serves_target(worker: Worker, rollout: Rollout) -> bool:
    """Return whether a worker serves the rollout's version."""
    return worker.is_open and worker.proved == rollout.to


def has_begun(world: World, rollout: Rollout) -> bool:
    """Return whether a worker of the fleet has begun to load the rollout's version."""
    return any(_has_begun(w, rollout) for w in selected(world))


def _has_begun(worker: Worker, rollout: Rollout) -> bool:
    report = worker.report
    if report is None or not worker.is_live:
        return False
    if worker.failed(rollout.to, rollout.operation):
        return True
    if report.stage is Stage.LOADING:
        # In the same operation an idle worker may load the old version first.
        running = report.running
        about = rollout.to, rollout.operation
        return running is not None and (running.version, running.operation) == about
    return report.stage in {Stage.LOADED, Stage.PROVED} and report.installed == rollout.to


def some_serve_target(world: World, rollout: Rollout) -> bool:
    """Return whether a worker serves the rollout's version: the rest then changes one by one."""
    return any(serves_target(w, rollout) for w in selected(world))


def is_gathering(world: World, rollout: Rollout) -> bool:
    """Return whether the workers still prepare and pause: none loads the version or serves it."""
    return not has_begun(world, rollout) and not some_serve_target(world, rollout)


def awaited(world: World, rollout: Rollout) -> list[Worker]:
    """Return the workers that the others wait for behind closed gates, once one has begun to load.

    They include workers that serve the old version again because their pause timed out: two
    versions must not be served. No wait lasts longer than a whole change may take.
    """
    is_late = _longest_s(world) > _change_s(world)
    return [w for w in team(world, rollout) if _is_awaited(w, rollout, is_late=is_late)]


def _is_awaited(worker: Worker, rollout: Rollout, *, is_late: bool) -> bool:
    if worker.calling in {Verb.RELOAD, Verb.RESUME} or worker.stage in LOADING:
        return True
    if is_late:
        return False
    if worker.stage is not Stage.PAUSED:
        return worker.stage is Stage.OPEN
    if worker.proved == rollout.to or worker.refused(rollout.to, rollout.operation):
        return False
    # Behind its closed gate it serves no second version.
    return worker.is_busy or not is_stuck(worker, rollout)


def is_stuck(worker: Worker, rollout: Rollout) -> bool:
    """Return whether a paused worker's change failed: its engine may no longer answer."""
    has_failed = worker.failure_in(rollout.operation) is not None
    return worker.stage is Stage.PAUSED and has_failed


def _longest_s(world: World) -> float:
    """Return the longest time for which a gate has been closed for this change."""
    changed = (w for w in selected(world) if w.is_live and w.stage is not Stage.DOUBT)
    return max((w.report.paused_s or 0.0 for w in changed if w.report), default=0.0)


def _change_s(world: World) -> int:
    allowed = world.fleet.spec.rollout.timeouts
    load_s = allowed.reload_seconds + allowed.verify_seconds
    return allowed.pause_seconds + allowed.flush_seconds + load_s
