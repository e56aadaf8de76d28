"""Whether a fleet serves what its spec requests, in one word: what `wait` decides by."""

from enum import StrEnum
from typing import NamedTuple

from rlfleet_view.fleet import ConditionRow, ObservedFleet
from rlfleet_view.progress import copied

MIXED = "MixedVersions"
"""The operator's reason for workers that serve several versions, while none is requested."""


class SyncState(StrEnum):
    """What a fleet is in."""

    SYNCED = "Synced"
    """All workers take traffic with the target."""
    STALLED = "Stalled"
    """Waiting does not help."""
    SUPERSEDED = "Superseded"
    """The spec requests another version than the one waited for."""
    BEHIND = "Behind"
    """The operator is at work, or has not read the spec yet."""
    DELETING = "Deleting"
    """It is deleted, and kept by finalizers: the operator changes nothing more."""


class Judged(NamedTuple):
    """A state with its reason."""

    state: SyncState
    reason: str
    message: str


def judged(fleet: ObservedFleet, version: str | None = None) -> Judged:
    """Return the state of a fleet for a client that waits for ``version``.

    Only what the operator wrote about the present spec counts: conditions of an earlier spec
    would end a wait before the operator has seen the change.
    """
    if fleet.deleted_at:
        return Judged(SyncState.DELETING, "Deleted", deletion(fleet))
    declared = fleet.spec.get("weightVersion")
    if version and declared and declared != version:
        message = f"spec.weightVersion is {declared}, not {version}"
        return Judged(SyncState.SUPERSEDED, "AnotherVersion", message)
    stalled = fleet.condition("Stalled")
    # A trainer or the store may still name the version: what stalls is another one until then.
    is_of_it = not version or version in {declared, fleet.target}
    if stalled is not None and stalled.is_true and is_of_it:
        return Judged(SyncState.STALLED, stalled.reason, stalled.message)
    if not fleet.is_observed:
        message = "the operator has not read this spec yet"
        return Judged(SyncState.BEHIND, "Unobserved", message)
    if version and fleet.target != version:
        return _of_another(fleet, version)
    return _of_condition(fleet)


def deletion(fleet: ObservedFleet) -> str:
    """Return what keeps a fleet that is being deleted."""
    return (
        f"deleted at {fleet.deleted_at}, kept by finalizers: {fleet.finalizers};"
        " the operator changes nothing more"
    )


def summary(fleet: ObservedFleet) -> str:
    """Return the state in one line: the operator's own, unless the fleet is being deleted."""
    found = judged(fleet)
    told = "" if found.state is SyncState.DELETING else fleet.status.get("summary")
    return str(told or found.message)


def _of_another(fleet: ObservedFleet, version: str) -> Judged:
    message = f"target is {fleet.target or 'not set'}, not {version}"
    stalled = fleet.condition("Stalled")
    if stalled is not None and stalled.is_true:
        message += f"; it is stalled: {stalled.reason}: {stalled.message}"
    return Judged(SyncState.BEHIND, "AnotherTarget", message)


def _of_condition(fleet: ObservedFleet) -> Judged:
    synced = fleet.condition("WeightsSynced")
    if synced is None:
        return Judged(
            SyncState.BEHIND, "Unobserved", "no condition WeightsSynced about this spec yet"
        )
    if synced.is_true:
        return Judged(SyncState.SYNCED, synced.reason, synced.message)
    return _behind(fleet, synced)


def _behind(fleet: ObservedFleet, synced: ConditionRow) -> Judged:
    """Return what the operator is at, with the rollout's own message or its copies."""
    moving = fleet.condition("Reconciling")
    at = moving if moving is not None and moving.is_true else synced
    rollout, said = fleet.rollout, ""
    if rollout is not None and rollout.is_under_way:
        said = rollout.message
        if not said and rollout.copies is not None:
            said = f"copied {copied(rollout.copies)}"
    message = at.message if not said or said in at.message else f"{at.message}; {said}"
    return Judged(SyncState.BEHIND, at.reason, message)
