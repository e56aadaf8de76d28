"""Which rollout is active: the requested version against the recorded rollout."""

from dataclasses import replace

from rlfleet_operator.core.model.world import World
from rlfleet_operator.core.rollout import barrier_progress, version_order
from rlfleet_operator.core.rollout.failure_rules import RolloutStop, stop
from rlfleet_operator.core.rollout.rollout import (
    FAILED,
    HELD,
    Outcome,
    Reason,
    Rollout,
    last_id,
    of_record,
    served,
)
from rlfleet_operator.crd.rollout_spec import OnFailure, Strategy
from rlfleet_operator.crd.rollout_status import RolloutStatus


def current(world: World) -> Rollout | None:
    """Return the rollout to work on; None without a target."""
    if world.fleet.target is None:
        return None
    recorded = world.fleet.status.rollout
    if is_due(world):
        return _begun(world, recorded)
    if recorded is None or _is_withdrawn(recorded, world):
        return None
    rollout = of_record(recorded)
    reason = stop(world, rollout) if rollout.is_active else None
    return rollout if reason is None else _stopped(world, rollout, reason)


def is_requested(world: World) -> bool:
    """Return whether the target differs from that of the recorded rollout."""
    target, status = world.fleet.target, world.fleet.status
    recorded = status.rollout
    if target is None:
        return False
    return (
        recorded is None
        or of_record(recorded).asked != target
        or recorded.restart_id != world.fleet.spec.rollout.restart_id
        # The version was removed from the spec and set again.
        or status.target != target
        or recorded.withdrawn
    )


def _is_withdrawn(recorded: RolloutStatus, world: World) -> bool:
    """Return whether the version of the recorded rollout has left the spec, and not come back.

    An earlier operator recorded only that there was no target.
    """
    return recorded.withdrawn or not world.fleet.status.target


def is_due(world: World) -> bool:
    """Return whether a new rollout begins now."""
    rules, recorded = world.fleet.spec.rollout, world.fleet.status.rollout
    if not is_requested(world) or rules.dry_run or version_order.objection(world) is not None:
        return False
    if recorded is None or rules.strategy is not Strategy.BARRIER:
        return True
    # Workers behind a closed gate must not wait until another version is prepared, and a pending
    # command may be the one that loads.
    rollout = of_record(recorded)
    members = barrier_progress.team(world, rollout)
    is_asked = any(w.is_busy for w in members)
    has_begun = barrier_progress.has_begun(world, rollout)
    goes_through = is_asked or (has_begun and bool(barrier_progress.awaited(world, rollout)))
    return not (rollout.is_active and goes_through)


def _begun(world: World, recorded: RolloutStatus | None) -> Rollout:
    spec, version = world.fleet.spec, world.fleet.target or ""
    reason = _requester(world)
    if recorded is not None and of_record(recorded).asked == version:
        is_same = recorded.restart_id == spec.rollout.restart_id
        reason = reason if is_same else Reason.RESTART
    return Rollout(
        id=last_id(world) + 1,
        before=served(world),
        to=version,
        asked=version,
        reason=reason,
        is_new=True,
    )


def _requester(world: World) -> Reason:
    if world.fleet.spec.weight_version is not None:
        return Reason.SPEC
    return Reason.FOLLOW if world.fleet.follows else Reason.TRAINER


def _stopped(world: World, rollout: Rollout, reason: RolloutStop) -> Rollout:
    policy = world.fleet.spec.rollout.on_failure
    if reason.is_of_version and policy is OnFailure.ROLLBACK and _can_go_back(rollout):
        return Rollout(
            id=last_id(world) + 1,
            before=rollout.to,
            to=rollout.fallback,
            asked=rollout.asked,
            reason=Reason.ROLLBACK,
            is_new=True,
            why=reason.why,
        )
    is_held = reason.is_of_version and policy is OnFailure.HOLD
    return replace(
        rollout,
        outcome=Outcome.STOPPED,
        is_new=True,
        phase=HELD if is_held else FAILED,
        why=reason.why,
    )


def _can_go_back(rollout: Rollout) -> bool:
    return rollout.fallback not in {"", rollout.to}
