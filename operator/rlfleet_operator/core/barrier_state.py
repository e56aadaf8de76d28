"""How far a Barrier has come, read from the workers' reports alone.

All pause, all reload and prove, all resume. Nothing of it is remembered: until the first
worker has begun to load, everybody can go back to the old version; from then on there is
no way but forward.
"""

from rlfleet_contract.models import Stage, Verb
from rlfleet_operator.core.rollout import Rollout
from rlfleet_operator.core.selection import selected
from rlfleet_operator.core.world import Worker, World


def team(world: World, rollout: Rollout) -> list[Worker]:
    """Return the workers that change together: those that answer and have not failed."""
    return [
        w
        for w in selected(world)
        if w.is_live
        and w.stage is not Stage.DOWN
        and not w.failed(rollout.to, rollout.operation)
        and not is_through(w, rollout)
    ]


def is_through(worker: Worker, rollout: Rollout) -> bool:
    """Tell whether a worker serves the rollout's version."""
    return worker.is_open and worker.proved == rollout.to


def has_begun(world: World, rollout: Rollout) -> bool:
    """Tell whether a worker of the fleet has begun to load the rollout's version."""
    return any(_has_begun(w, rollout) for w in selected(world))


def _has_begun(worker: Worker, rollout: Rollout) -> bool:
    report = worker.report
    if report is None or not worker.is_live:
        return False
    if worker.failed(rollout.to, rollout.operation):
        return True
    if report.stage is Stage.LOADING:
        return report.running is not None and report.running.operation == rollout.operation
    return report.stage in {Stage.LOADED, Stage.PROVED} and report.installed == rollout.to


def is_loading(worker: Worker) -> bool:
    """Tell whether the others wait for this worker behind their closed gates."""
    return worker.calling in {Verb.RELOAD, Verb.RESUME} or worker.stage in {
        Stage.PAUSED,
        Stage.LOADING,
        Stage.LOADED,
    }
