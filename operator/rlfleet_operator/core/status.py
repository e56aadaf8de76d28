"""The status of a fleet, as a pure function of the world and the rollout."""

from collections.abc import Sequence
from datetime import UTC, datetime
from statistics import median

from rlfleet_contract.models import Timings
from rlfleet_operator.core import conditions
from rlfleet_operator.core.rollout import COMPLETED, FAILED, REFUSED, Rollout
from rlfleet_operator.core.worker import BADNESS, CHANGING, Phase, complaint_of, phase_of
from rlfleet_operator.core.world import FLEET_LABEL, Worker, World
from rlfleet_operator.resource_status import (
    FleetStatus,
    RolloutStatus,
    RolloutTimings,
    Spread,
    WorkerStatus,
)

_STEPS = ("prepare", "pause", "flush", "reload", "verify", "resume", "window")
PREPARING, UPDATING, WAITING = "Preparing", "Updating", "Waiting"
_WORKER_MESSAGE_LIMIT = 256


def status_of(world: World, rollout: Rollout | None) -> FleetStatus:
    """Return what status shall say; equal worlds give equal statuses, time apart."""
    now = datetime.fromtimestamp(world.moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    target = rollout.to if rollout else ""
    held = sum(_holds(w, target) for w in world.desired)
    limit = world.fleet.spec.status_worker_limit
    listed = sorted(world.workers, key=_worst_first)[:limit]
    if len(world.workers) <= limit:
        listed = list(world.workers)
    return FleetStatus(
        observed_generation=world.fleet.generation,
        epoch=world.fleet.status.epoch,
        replicas=sum(w.pod is not None for w in world.workers),
        ready_replicas=sum(_is_ready(w) for w in world.workers),
        proved_replicas=held,
        quarantined_replicas=sum(phase_of(w) is Phase.QUARANTINED for w in world.workers),
        selector=f"{FLEET_LABEL}={world.fleet.name}",
        target=target,
        serving=_serving(world),
        proved=f"{held}/{len(world.desired)}",
        rollout=_rollout(world, rollout, now),
        workers=[_worker(w) for w in listed],
        workers_truncated=len(world.workers) - len(listed),
        conditions=conditions.dated(
            conditions.verdicts(world, rollout),
            world.fleet.status.conditions,
            generation=world.fleet.generation,
            now=now,
        ),
    )


def _holds(worker: Worker, target: str) -> bool:
    return worker.is_open and (not target or worker.proved == target)


def _is_ready(worker: Worker) -> bool:
    return worker.pod is not None and worker.pod.ready and not worker.pod.terminating


def _worst_first(worker: Worker) -> tuple[int, int]:
    return BADNESS[phase_of(worker)], worker.ordinal


def _serving(world: World) -> str:
    versions = {w.proved for w in world.workers if _is_ready(w) and w.proved}
    return versions.pop() if len(versions) == 1 else ""


def _worker(worker: Worker) -> WorkerStatus:
    change = worker.report.last_change if worker.report else None
    complaint = complaint_of(worker)
    return WorkerStatus(
        name=worker.name,
        phase=phase_of(worker),
        version=worker.proved,
        ready=_is_ready(worker),
        window_ms=round(change.timings.window_s * 1000) if change else None,
        message=complaint[:_WORKER_MESSAGE_LIMIT] if complaint else None,
    )


# --- the rollout --------------------------------------------------------------------------------


def _rollout(world: World, rollout: Rollout | None, now: str) -> RolloutStatus | None:
    recorded = world.fleet.status.rollout
    if rollout is None or rollout.is_completed:
        return recorded
    phase = _phase(world, rollout)
    if rollout.is_new or recorded is None:
        return RolloutStatus(
            id=rollout.id, from_version=rollout.before, to=rollout.to, phase=phase, started_at=now
        )
    has_ended = phase in {COMPLETED, FAILED}
    ended_at = recorded.finished_at or now if has_ended else None
    return recorded.model_copy(
        update={
            "phase": phase,
            "message": _message(world, rollout),
            "finished_at": ended_at,
            "seconds": round(world.moment - recorded.started_epoch, 1)
            if has_ended and recorded.seconds is None
            else recorded.seconds,
            "timings": _timings(world, rollout) or recorded.timings,
        }
    )


def _phase(world: World, rollout: Rollout) -> str:
    if rollout.is_failed:
        return FAILED
    # A fleet of no workers is at its version: whoever comes later catches up with it.
    if not rollout.is_new and all(conditions.is_synced(w, rollout) for w in world.desired):
        return COMPLETED
    steps = [p for p in map(phase_of, world.desired) if p in CHANGING]
    if steps:
        return max(steps, key=CHANGING.index)
    if conditions.refusal_of(world, rollout) is not None:
        return REFUSED
    if any(_holds(w, rollout.to) for w in world.desired):
        return UPDATING
    return PREPARING if rollout.is_new or any(w.is_live for w in world.desired) else WAITING


def _message(world: World, rollout: Rollout) -> str:
    refusal = conditions.refusal_of(world, rollout)
    if refusal is not None:
        worker, problem = refusal
        return f"{worker.name}: {problem.code}: {problem.message}"[: conditions.MESSAGE_LIMIT]
    for worker in world.desired:
        failure = worker.report.failure if worker.report else None
        if failure is not None and failure.operation == rollout.operation:
            return f"{worker.name}: {failure.code}: {failure.message}"[: conditions.MESSAGE_LIMIT]
    return ""


def _timings(world: World, rollout: Rollout) -> RolloutTimings | None:
    changes = [w.report.last_change for w in world.desired if w.report and w.report.last_change]
    mine = [c.timings for c in changes if c.operation == rollout.operation]
    if not mine:
        return None
    return RolloutTimings(**{step: _spread(mine, step) for step in _STEPS})


def _spread(timings: Sequence[Timings], step: str) -> Spread:
    values = sorted(round(getattr(t, f"{step}_s") * 1000) for t in timings)
    return Spread(min_ms=values[0], median_ms=round(median(values)), max_ms=values[-1])
