"""Which version a fleet that follows its trainer goes to (spec.weights.follow).

Workers report the newest complete version that they see. `latest` is the newest of these, and
`followed` is the one that the fleet goes to. It must stay true that both go back only when the
trainer's pointer names another run, and that a trainer which publishes faster than the fleet
changes cannot keep it from ever arriving: a rollout that gets on is not replaced.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import islice

from rlfleet_contract.paths import BASE_VERSION
from rlfleet_contract.version_order import is_before, number_of
from rlfleet_contract.worker.problems import Problem
from rlfleet_contract.worker.report import Newest, Stage, WorkerReport
from rlfleet_operator.core.model.world import Worker, World, time_of
from rlfleet_operator.core.rollout.cohorts import selected
from rlfleet_operator.core.rollout.rollout import Rollout, of_record
from rlfleet_operator.crd.fleet_status import StoreVersion

_LOOKERS = 4
"""One may be about to end, or have an old view of the volume."""


def latest(world: World) -> StoreVersion | None:
    """Return the newest complete version in the store; None if the fleet does not follow.

    A run is left only when no worker sees it any longer: some may have an old view of the pointer.
    """
    if not world.fleet.follows:
        return None
    known, seen = world.fleet.status.latest, _seen(world)
    if not seen:
        return known
    runs = Counter(one.run for one in seen)
    if known is not None and known.run_id in runs:
        run = known.run_id
    else:
        run = max(runs, key=lambda run: (runs[run], run))
    best = _highest([one for one in seen if one.run == run])
    found = StoreVersion(version=best.version, run_id=run, since=time_of(world.moment))
    return found if known is None or is_ahead(found, known) else known


def lookers(world: World, rollout: Rollout | None) -> dict[str, str | None]:
    """Return the workers that look for the newest version: each look costs the store requests.

    Each with the version that the fleet has taken up, if it accepts what its trainer offers.
    """
    return dict.fromkeys((w.name for w, _ in _looking(world)), _taken_up(world, rollout))


def blindness(world: World) -> tuple[Worker, Problem] | None:
    """Return a worker that cannot look for versions, and why, if none of those that look can."""
    found = [(worker, report.look_failure) for worker, report in _looking(world)]
    failed = [(worker, why) for worker, why in found if why is not None]
    return failed[0] if failed and len(failed) == len(found) else None


def _looking(world: World) -> list[tuple[Worker, WorkerReport]]:
    live = ((w, w.report) for w in world.desired if w.is_live and w.report is not None)
    return [*islice(live, _LOOKERS)] if world.fleet.follows else []


def _seen(world: World) -> list[Newest]:
    reports = (worker.report for worker in world.desired if worker.is_live)
    return [report.newest for report in reports if report and report.newest]


def followed(
    world: World, newest: StoreVersion | None, rollout: Rollout | None
) -> StoreVersion | None:
    """Return the version that the fleet goes to from the next pass on.

    ``rollout`` is the one of this pass's plan. While spec.weightVersion pins another version, none
    is on its way.
    """
    if not world.fleet.follows or newest is None:
        return None
    known = world.fleet.status.followed
    if known is None:
        return newest if _may_begin(world, newest) else None
    if not is_ahead(newest, known):
        return known
    is_free = world.fleet.spec.weight_version is not None or not _is_on_its_way(
        world, known, rollout
    )
    since = time_of(world.moment)
    return newest.model_copy(update={"since": since}) if is_free else known


def is_ahead(version: StoreVersion, known: StoreVersion) -> bool:
    """Return whether a version comes after another: in its run, or because its run does."""
    if version.run_id and version.run_id != known.run_id:
        return True
    return _number(version.version) > _number(known.version)


def _highest(seen: Sequence[Newest]) -> Newest:
    return max(seen, key=lambda one: (_number(one.version), one.version))


def _number(version: str) -> int:
    return 0 if version == BASE_VERSION else number_of(version) or 0


def _may_begin(world: World, newest: StoreVersion) -> bool:
    """Return whether a fleet that begins to follow may take this version.

    A list of names does not show that an older version is meant; a pointer to a run does.
    """
    recorded = world.fleet.status.rollout
    return (
        bool(newest.run_id)
        or recorded is None
        or is_before(newest.version, of_record(recorded).asked) is not True
    )


def _taken_up(world: World, rollout: Rollout | None) -> str | None:
    """Return the version that the fleet no longer needs from the volume; None before that.

    A trainer that waits until its offer is accepted deletes older versions with the next one.
    """
    weights = world.fleet.spec.weights
    if weights is None or not weights.acknowledge or not world.fleet.follows:
        return None
    newest = latest(world)
    next_one = followed(world, newest, rollout)
    if next_one is None:
        return BASE_VERSION if newest is None else newest.version
    is_begun = next_one == world.fleet.status.followed
    return next_one.version if is_begun and not _gets_on(world, rollout) else None


def _is_on_its_way(world: World, known: StoreVersion, rollout: Rollout | None) -> bool:
    """Return whether the rollout of the followed version still gets on, or is held on purpose."""
    # Not begun: rejected as too old, previewed, or waiting for a Barrier.
    return rollout is not None and rollout.asked == known.version and _gets_on(world, rollout)


def _gets_on(world: World, rollout: Rollout | None) -> bool:
    if rollout is None:
        return False
    members = selected(world)
    is_refused = any(w.refused(rollout.to, rollout.operation) for w in members)
    if not rollout.is_active or is_refused or _is_overdue(world, rollout):
        return False
    return any(_moves(worker, rollout) for worker in members)


def _is_overdue(world: World, rollout: Rollout) -> bool:
    recorded = world.fleet.status.rollout
    if rollout.is_new or recorded is None:
        return False
    spent_s = recorded.spent_s(world.moment) - recorded.held_s(world.moment)
    return spent_s >= world.fleet.spec.rollout.progress_deadline_seconds


def _moves(worker: Worker, rollout: Rollout) -> bool:
    """Return whether a worker has still to change, and can: others catch up later."""
    has_it = worker.is_settled and worker.proved == rollout.to
    is_lost = worker.stage is Stage.DOWN or worker.failed(rollout.to, rollout.operation)
    return not has_it and not is_lost
