"""The rollout in status, and the history of earlier ones."""

from collections import Counter
from collections.abc import Sequence
from statistics import median

from rlfleet_contract.worker.report import Progress, Timings
from rlfleet_operator.core.model.worker_phase import CHANGING, awaited_by, phase_of
from rlfleet_operator.core.model.world import World, time_of
from rlfleet_operator.core.rollout.cohorts import awaits_promotion, canaries, is_promoted, kept
from rlfleet_operator.core.rollout.rollout import (
    CANARY_HOLD,
    COMPLETED,
    ENDED,
    PARTITIONED,
    PAUSED,
    REFUSED,
    ROLLED_BACK,
    SUPERSEDED,
    Reason,
    Rollout,
    of_record,
)
from rlfleet_operator.core.status import conditions
from rlfleet_operator.crd.field_types import epoch_of
from rlfleet_operator.crd.rollout_status import (
    SETTLE_S,
    CopyProgress,
    PastRollout,
    RolloutStatus,
    RolloutTimings,
    Spread,
)

_STEPS = ("prepare", "pause", "flush", "reload", "verify", "resume", "window")
PREPARING, UPDATING, WAITING = "Preparing", "Updating", "Waiting"
_IDLE = frozenset({PAUSED, CANARY_HOLD, PARTITIONED})
"""Phases that wait for the user; their time does not count for the deadline."""
_NO_PARTITION = {0, "0%"}
_PAST_MESSAGE_LIMIT = 256
_QUICK_S = 4.0
"""A rollout that begins within this time of another's start waits before it changes workers."""


def rollout_status(world: World, rollout: Rollout | None, now: str) -> RolloutStatus | None:
    """Return the rollout for status, its record updated from what is observed."""
    known = world.fleet.status.rollout
    if rollout is None:
        return _left(world, known, now)
    if rollout.is_completed:
        return known
    is_known = known is not None and known.id == rollout.id
    recorded = _dated(known, world, now) if known and is_known else _begun(world, rollout, now)
    phase = _phase(world, rollout)
    timings = _timings(world, rollout) or recorded.timings
    return recorded.model_copy(
        update={
            "phase": phase,
            "kept": _kept(world, known),
            "replicas": _most(recorded.replicas, world),
            "message": _message(world, rollout),
            **_clocked(recorded, phase, world, now),
            "canary_since": _canary_since(world, rollout, recorded, now),
            "timings": timings,
            "copies": _copies(world, rollout, recorded.copies),
            # Updated together with timings only, to save writes.
            "prepared_bytes": recorded.prepared_bytes
            if timings == recorded.timings
            else _prepared_bytes(world, rollout) or recorded.prepared_bytes,
        }
    )


def _kept(world: World, known: RolloutStatus | None) -> str:
    """Return the version that most workers below the partition serve.

    While none does, it is the recorded one, also of a rollout before that did not complete: a
    replaced pod must find its version.
    """
    before = of_record(known) if known is not None else None
    recorded = "" if before is None or before.is_completed else before.kept or before.fallback
    first = kept(world)
    own = (w.proved for w in world.desired[:first] if w.is_settled and w.ordinal < first)
    votes = Counter(version for version in own if version)
    if votes:
        return max(votes, key=lambda v: (votes[v], v == recorded, v))
    return recorded if world.fleet.spec.rollout.partition not in _NO_PARTITION else ""


def _most(recorded: int | None, world: World) -> int | None:
    """Return the highest number of workers so far; 0 stays: such a rollout began without any."""
    return max(recorded, world.fleet.spec.replicas) if recorded else recorded


def _clocked(
    recorded: RolloutStatus, phase: str, world: World, now: str
) -> dict[str, str | float | None]:
    """Return when the rollout ended, its duration, and its time on hold."""
    has_ended = phase in ENDED
    # A fleet without workers waits for the user, too.
    is_idle = phase in _IDLE or not (has_ended or world.desired)
    seconds = recorded.seconds
    if has_ended and seconds is None:
        seconds = round(recorded.spent_s(world.moment), 1)
    held_s = recorded.held_seconds if is_idle else round(recorded.held_s(world.moment))
    return {
        "finished_at": recorded.finished_at or now if has_ended else None,
        "seconds": seconds,
        "held_since": recorded.held_since or now if is_idle else None,
        "held_seconds": held_s,
    }


def _dated(known: RolloutStatus, world: World, now: str) -> RolloutStatus:
    """Return the recorded rollout, with times in the future (the clock stepped back) set to now.

    So the progress deadline and holds may last at most twice as long.
    """
    moments = {
        "started_at": known.started_at,
        "held_since": known.held_since,
        "canary_since": known.canary_since,
    }
    ahead = {name: now for name, at in moments.items() if at and epoch_of(at) > world.moment + 1}
    return known.model_copy(update=ahead) if ahead else known


def _left(world: World, known: RolloutStatus | None, now: str) -> RolloutStatus | None:
    """Return the recorded rollout, withdrawn: its version has left the spec, which ends it."""
    if known is None:
        return None
    known = known.model_copy(update={"withdrawn": True})
    if known.phase in ENDED or world.fleet.target is not None:
        return known
    return known.model_copy(
        update={
            "phase": SUPERSEDED,
            "message": f"cancelled: {known.to} is no longer requested",
            "copies": None,
            "finished_at": now,
            "seconds": round(known.spent_s(world.moment), 1),
            "held_since": None,
            "held_seconds": round(known.held_s(world.moment)),
        }
    )


def _canary_since(world: World, rollout: Rollout, recorded: RolloutStatus, now: str) -> str | None:
    """Return the time since which the canaries serve without a break; a promotion stays."""
    if _canaries_serve(world, rollout):
        return recorded.canary_since or now
    is_promotion = is_promoted(world)
    # A canary that misses one poll is presumed to serve.
    return recorded.canary_since if is_promotion or not _is_canary_lost(world, rollout) else None


def _begun(world: World, rollout: Rollout, now: str) -> RolloutStatus:
    # The spec's runId and step belong to weightVersion, not to a trainer's version.
    weights = world.fleet.spec.weights if world.fleet.spec.weight_version else None
    followed = world.fleet.status.followed if rollout.reason is Reason.FOLLOW else None
    return RolloutStatus(
        id=rollout.id,
        reason=rollout.reason,
        asked=rollout.asked,
        from_version=rollout.before,
        to=rollout.to,
        phase=PREPARING,
        message="",
        started_at=now,
        not_before=_settled_at(world, rollout),
        replicas=world.fleet.spec.replicas,
        restart_id=world.fleet.spec.rollout.restart_id,
        run_id=weights.run_id if weights else followed.run_id if followed else "",
        step=weights.step if weights else None,
    )


def _settled_at(world: World, rollout: Rollout) -> str | None:
    """Return when a rollout may begin to change serving workers; None for at once.

    Recorded times are whole seconds, so both spans may be one second shorter.
    """
    before = world.fleet.status.rollout
    if before is None or rollout.reason is Reason.ROLLBACK:
        return None
    is_quick = world.moment - before.started_epoch < _QUICK_S
    if before.phase in ENDED and not is_quick:
        return None
    return time_of(world.moment + SETTLE_S)


def _phase(world: World, rollout: Rollout) -> str:
    if rollout.is_stopped:
        return rollout.phase
    if not conditions.behind(world, rollout.to):
        return _reached_phase(world, rollout)
    if not conditions.behind(world, rollout.to, selected=True):
        return PARTITIONED
    steps = [p for p in map(phase_of, world.exceptional) if p in CHANGING]
    if steps:
        return max(steps, key=CHANGING.index)
    if conditions.refusal_of(world, rollout) is not None:
        return REFUSED
    return _resting_phase(world, rollout)


def _reached_phase(world: World, rollout: Rollout) -> str:
    """Return the phase while no worker is behind; a lack of workers ends no hold."""
    is_first = rollout.is_new and not rollout.before
    if not world.desired and not is_first:
        return WAITING
    if not rollout.is_new and awaits_promotion(world):
        return CANARY_HOLD
    return ROLLED_BACK if rollout.reason is Reason.ROLLBACK else COMPLETED


def _resting_phase(world: World, rollout: Rollout) -> str:
    """Return the phase while no worker changes."""
    if world.fleet.spec.rollout.paused:
        return PAUSED
    if not is_promoted(world) and _canaries_serve(world, rollout):
        return CANARY_HOLD
    if any(w.is_settled and w.proved == rollout.to for w in world.desired):
        return UPDATING
    return PREPARING if rollout.is_new or any(w.is_live for w in world.desired) else WAITING


def _canaries_serve(world: World, rollout: Rollout) -> bool:
    first = canaries(world)
    return (
        bool(first)
        and not rollout.is_new
        and all(conditions.is_synced(w, rollout.to) for w in first)
    )


def _is_canary_lost(world: World, rollout: Rollout) -> bool:
    """Return whether a canary is known to be gone, not ready, or not to serve the version."""
    return not world.desired or any(
        not w.takes_traffic or (w.is_live and not conditions.is_synced(w, rollout.to))
        for w in canaries(world)
    )


def _message(world: World, rollout: Rollout) -> str:
    refusal = conditions.refusal_of(world, rollout)
    if rollout.why:
        return rollout.why[: conditions.MESSAGE_LIMIT]
    if refusal is not None:
        worker, problem = refusal
        return f"{worker.name}: {problem.code}: {problem.message}"[: conditions.MESSAGE_LIMIT]
    for worker in world.exceptional:
        failure = worker.failure_in(rollout.operation)
        if failure is not None:
            return f"{worker.name}: {failure.code}: {failure.message}"[: conditions.MESSAGE_LIMIT]
    return _awaited(world, rollout)


def _awaited(world: World, rollout: Rollout) -> str:
    for worker in world.exceptional:
        awaited = awaited_by(worker, rollout.to)
        if awaited is not None:
            return f"{worker.name} {awaited}"[: conditions.MESSAGE_LIMIT]
    return ""


def _copies(world: World, rollout: Rollout, recorded: CopyProgress | None) -> CopyProgress | None:
    """Return the progress of the copies; as it is recorded while only the rate varies."""
    reports = [w.report.progress for w in world.exceptional if w.report and w.report.progress]
    mine = [p for p in reports if p.version == rollout.to and p.bytes_total]
    if not mine:
        return None
    found = _together(mine)
    is_recorded = recorded is not None and recorded.is_rated and found.is_step_of(recorded)
    return recorded if is_recorded else found


def _together(copies: Sequence[Progress]) -> CopyProgress:
    done, total = sum(p.bytes_done for p in copies), sum(p.bytes_total for p in copies)
    rate = sum(p.bytes_per_s or 0 for p in copies)
    left = max(p.left_s or 0 for p in copies)
    return CopyProgress(
        percent=done * 10 // total * 10,
        total_bytes=total,
        bytes_per_second=round(rate) if rate else None,
        seconds_left=round(left) if rate else None,
        workers=len(copies),
    )


def _timings(world: World, rollout: Rollout) -> RolloutTimings | None:
    changes = [w.report.last_change for w in world.desired if w.report and w.report.last_change]
    mine = [c.timings for c in changes if c.operation == rollout.operation]
    if not mine:
        return None
    return RolloutTimings(**{step: _spread(mine, step) for step in _STEPS})


def _prepared_bytes(world: World, rollout: Rollout) -> int | None:
    reports = [w.report for w in world.desired if w.report and w.report.prepared == rollout.to]
    return max((report.prepared_bytes or 0 for report in reports), default=0) or None


def _spread(timings: Sequence[Timings], step: str) -> Spread:
    values = sorted(round(getattr(t, f"{step}_s") * 1000) for t in timings)
    return Spread(min_ms=values[0], median_ms=round(median(values)), max_ms=values[-1])


# --- history ------------------------------------------------------------------------------------


def history(world: World, rollout: Rollout | None) -> list[PastRollout]:
    """Return the earlier rollouts, the latest first."""
    recorded, known = world.fleet.status.rollout, world.fleet.status.history
    if recorded is not None and rollout is not None and recorded.id != rollout.id:
        known = [_past(recorded, rollout, world.moment), *known]
    return known[: world.fleet.spec.history_limit]


def _past(recorded: RolloutStatus, following: Rollout, moment: float) -> PastRollout:
    window = recorded.timings.window if recorded.timings else None
    is_rolled_back = following.reason is Reason.ROLLBACK
    ended = recorded.phase if recorded.phase in ENDED else SUPERSEDED
    message = following.why if is_rolled_back else recorded.message
    return PastRollout(
        id=recorded.id,
        reason=recorded.reason,
        from_version=recorded.from_version,
        to=recorded.to,
        result="Failed" if is_rolled_back else ended,
        started_at=recorded.started_at,
        seconds=recorded.seconds
        if recorded.seconds is not None
        else round(recorded.spent_s(moment), 1),
        window_ms=window.median_ms if window else None,
        message=message[:_PAST_MESSAGE_LIMIT] if ended != COMPLETED else "",
        run_id=recorded.run_id,
        step=recorded.step,
        prepared_bytes=recorded.prepared_bytes,
    )
