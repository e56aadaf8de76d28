"""The gauges of a fleet, from the world and the status of one pass.

Every worker counts, whatever the status lists. A fleet has a bounded number of series at a time:
names of versions are the only labels that change, and each use of a version has one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from rlfleet_contract.version_order import number_of
from rlfleet_operator.core.model.worker_phase import Phase, phase_of
from rlfleet_operator.core.model.world import Fleet, World
from rlfleet_operator.core.rollout.rollout import COMPLETED, ROLLED_BACK
from rlfleet_operator.core.status import verdict
from rlfleet_operator.crd.field_types import epoch_of
from rlfleet_operator.crd.fleet_status import FleetStatus

CONDITION = "rlfleet_condition"
_NUMBER_LIMIT = 2**53
"""Prometheus holds no larger whole number."""
_TYPES = (
    verdict.READY,
    verdict.SYNCED,
    verdict.PAUSED,
    verdict.UNTESTED,
    verdict.RECONCILING,
    verdict.STALLED,
    verdict.DEGRADED,
)


class Family(NamedTuple):
    """A gauge, and its labels after namespace and fleet."""

    help: str
    labels: tuple[str, ...] = ()


class Sample(NamedTuple):
    """A value of a gauge of one fleet."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


FAMILIES: Mapping[str, Family] = {
    CONDITION: Family(
        "1 if a condition is True, else 0; a type without a condition has an empty reason.",
        ("type", "reason"),
    ),
    "rlfleet_workers": Family("Workers by phase.", ("phase",)),
    "rlfleet_desired_workers": Family("Workers that the spec requests."),
    "rlfleet_ready_workers": Family("Workers that take traffic."),
    "rlfleet_proved_workers": Family("Workers that proved the target, or any version without one."),
    "rlfleet_version_info": Family(
        "1 for each version in use: target, serving (absent while workers differ), latest (in the"
        " store, with weights.follow).",
        ("use", "version"),
    ),
    "rlfleet_version_number": Family("Number at the end of a version's name, if any.", ("use",)),
    "rlfleet_version_timestamp_seconds": Family(
        "Time since when: the target's rollout began, all workers serve the version, the store has"
        " the latest.",
        ("use",),
    ),
    "rlfleet_follow_timestamp_seconds": Family(
        "Time since when a fleet that follows sees no newer version: the store has the latest, its"
        " last rollout began, or it exists. Absent while weightVersion or rollout.paused holds it."
    ),
    "rlfleet_version_skew": Family("Steps between the newest and the oldest version in traffic."),
    "rlfleet_prepare_done_bytes": Family("Bytes that prepares under way have copied, all workers."),
    "rlfleet_prepare_wanted_bytes": Family("Bytes that prepares under way copy, all workers."),
}


def gauges(world: World, status: FleetStatus) -> list[Sample]:
    """Return the value of each gauge of a fleet."""
    conditions = ((c.type, c.status, c.reason) for c in status.conditions)
    return [
        *condition_samples(conditions),
        *_workers(world),
        Sample("rlfleet_desired_workers", len(world.desired)),
        Sample("rlfleet_ready_workers", status.ready_replicas),
        Sample("rlfleet_proved_workers", status.proved_replicas),
        *_versions(status),
        *_following(world.fleet, status),
        *([] if status.skew is None else [Sample("rlfleet_version_skew", status.skew)]),
        *_prepares(world),
    ]


def condition_samples(conditions: Iterable[tuple[str, str, str]]) -> list[Sample]:
    """Return a value for each type of condition, from type, status and reason of those that are."""
    known = {kind: (status == "True", reason) for kind, status, reason in conditions}
    found = {kind: known.get(kind, (False, "")) for kind in _TYPES}
    return [Sample(CONDITION, holds, (kind, why)) for kind, (holds, why) in found.items()]


def _workers(world: World) -> list[Sample]:
    found = Counter(map(phase_of, (*world.exceptional, *world.surplus)))
    found[Phase.SERVING] += len(world.desired) - len(world.exceptional)
    return [Sample("rlfleet_workers", found[phase], (phase,)) for phase in Phase]


def _versions(status: FleetStatus) -> Iterator[Sample]:
    latest = status.latest
    versions = {
        "target": status.target,
        "serving": status.serving,
        "latest": latest.version if latest else "",
    }
    moments = {
        "target": _begun_at(status),
        "serving": _served_since(status),
        "latest": epoch_of(latest.since) if latest else None,
    }
    for use, version in versions.items():
        if not version:
            continue
        yield Sample("rlfleet_version_info", 1, (use, version))
        number, moment = number_of(version), moments[use]
        if number is not None and number < _NUMBER_LIMIT:
            yield Sample("rlfleet_version_number", number, (use,))
        if moment is not None:
            yield Sample("rlfleet_version_timestamp_seconds", moment, (use,))


def _begun_at(status: FleetStatus) -> float | None:
    """Return when the rollout to the target began."""
    recorded = status.rollout
    is_its = recorded is not None and status.target in {recorded.asked, recorded.to}
    return recorded.started_epoch if recorded and is_its else None


def _served_since(status: FleetStatus) -> float | None:
    """Return when the last rollout to the served version ended; None if status has none."""
    recorded = status.rollout
    if recorded is not None and recorded.to == status.serving and recorded.finished_at:
        is_done = recorded.phase in {COMPLETED, ROLLED_BACK}
        return epoch_of(recorded.finished_at) if is_done else None
    for past in status.history:
        if past.to == status.serving and past.result in {COMPLETED, ROLLED_BACK}:
            return epoch_of(past.started_at) + past.seconds
    return None


def _following(fleet: Fleet, status: FleetStatus) -> Iterator[Sample]:
    """Return since when no version came; a rollout counts, because a pin may have ended with it."""
    if not fleet.follows or fleet.spec.weight_version is not None or fleet.spec.rollout.paused:
        return
    latest, recorded = status.latest, status.rollout
    moments = (
        fleet.created_at,
        epoch_of(latest.since) if latest else None,
        recorded.started_epoch if recorded else None,
    )
    known = [moment for moment in moments if moment is not None]
    if known:
        yield Sample("rlfleet_follow_timestamp_seconds", max(known))


def _prepares(world: World) -> list[Sample]:
    # A worker with a prepare under way is no plain one.
    reports = [w.report for w in (*world.exceptional, *world.surplus) if w.report and w.is_live]
    copies = [report.progress for report in reports if report.progress]
    return [
        Sample("rlfleet_prepare_done_bytes", sum(copy.bytes_done for copy in copies)),
        Sample("rlfleet_prepare_wanted_bytes", sum(copy.bytes_total for copy in copies)),
    ]
