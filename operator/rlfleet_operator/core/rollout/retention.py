"""Which versions a fleet needs (spec.weights.retention), and what a worker found beyond them.

It must stay true that every version counts as needed which a worker may load from the store:
to serve, to catch up, or to go back.
"""

from rlfleet_contract.paths import BASE_VERSION
from rlfleet_contract.worker.retention import MOST_NEEDED, Needs
from rlfleet_operator.core.model.world import World
from rlfleet_operator.core.rollout.rollout import Rollout
from rlfleet_operator.crd.fleet_status import FleetStatus
from rlfleet_operator.crd.retention import RetentionStatus

_MESSAGE_LIMIT = 256


def needs(world: World, rollout: Rollout | None) -> Needs | None:
    """Return what the fleet needs; None if none must be looked for, or too much is needed.

    ``rollout`` is the one of this pass; what status names is still needed too.
    """
    weights = world.fleet.spec.weights
    if weights is None or weights.retention is None or world.fleet.deleting:
        return None
    named = _named(world.fleet.status) | _held(world) | {world.fleet.target}
    if rollout is not None:
        named |= {rollout.asked, rollout.to, rollout.before, rollout.kept}
    found = sorted({version for version in named if version} - {BASE_VERSION})
    if not found or len(found) > MOST_NEEDED:
        return None
    return Needs(versions=found, keep=weights.retention.keep)


def _named(status: FleetStatus) -> set[str | None]:
    """Return what a status names: target, rollback and what workers served last."""
    found = {status.target, status.serving, *(worker.version for worker in status.workers)}
    found |= {one.version for one in (status.latest, status.followed, status.trainer_target) if one}
    if status.rollout is not None:
        recorded = status.rollout
        found |= {recorded.asked, recorded.to, recorded.from_version, recorded.kept}
    return found


def _held(world: World) -> set[str | None]:
    """Return what workers report that they serve, hold, take up or see as the newest."""
    found: set[str | None] = set()
    for report in (worker.report for worker in world.workers):
        if report is not None:
            found |= {report.proved, report.installed, report.prepared}
            found |= {one.version for one in (report.running, report.newest) if one is not None}
    return found


def retention(world: World) -> RetentionStatus | None:
    """Return what a worker found; what was known while none reports it."""
    weights = world.fleet.spec.weights
    if weights is None or weights.retention is None:
        return None
    for worker in world.desired:
        found = worker.report.unneeded if worker.is_live and worker.report else None
        if found is not None:
            return RetentionStatus(
                worker=worker.name,
                unneeded=found.versions,
                count=found.count,
                deleted=found.deleted,
                message=found.error[:_MESSAGE_LIMIT] or None,
            )
    return world.fleet.status.retention
