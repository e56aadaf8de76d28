"""The Events of a change of status: one per transition, none per poll."""

from dataclasses import dataclass
from typing import Literal

from rlfleet_operator.core.model.worker_phase import Phase
from rlfleet_operator.core.rollout.rollout import (
    CANARY_HOLD,
    COMPLETED,
    ENDED,
    PAUSED,
    ROLLED_BACK,
    Reason,
)
from rlfleet_operator.core.status import waiting_requests
from rlfleet_operator.core.status.verdict import DEGRADED, STALLED
from rlfleet_operator.crd.fleet_status import FleetStatus, WorkerStatus
from rlfleet_operator.crd.rollout_status import RolloutStatus

_NAMED_WORKERS = 16
"""More transitions than this in one write get one Event together."""


@dataclass(frozen=True, slots=True)
class KubeEvent:
    """One Kubernetes Event about the fleet."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def between(before: FleetStatus, after: FleetStatus) -> list[KubeEvent]:
    """Return the Events of the transitions from one written status to the next."""
    return [
        *_rollout(before, after),
        *_warnings(before, after),
        *_rejected(before, after),
        *_adapters(before, after),
        *_exits(before, after),
        *_workers(before, after),
    ]


def _rollout(before: FleetStatus, after: FleetStatus) -> list[KubeEvent]:
    old, new = before.rollout, after.rollout
    if new is None:
        return []
    if old is None or old.id != new.id:
        return [*_begun(old, new), *_reached(new, after)]
    return [] if new.phase == old.phase else _reached(new, after)


def _reached(rollout: RolloutStatus, status: FleetStatus) -> list[KubeEvent]:
    """Return the Event of the phase that a rollout has reached, if it has one."""
    events: dict[str, tuple[Literal["Normal", "Warning"], str, str]] = {
        COMPLETED: ("Normal", "RolloutCompleted", _completed(rollout, status)),
        ROLLED_BACK: (
            "Warning",
            "RolledBack",
            f"rollout {rollout.id} returned every worker to {rollout.to}; {rollout.message}",
        ),
        CANARY_HOLD: (
            "Normal",
            "CanaryReady",
            f"rollout {rollout.id}: canaries serve {rollout.to}; the other workers wait",
        ),
        PAUSED: (
            "Normal",
            "RolloutPaused",
            f"rollout {rollout.id} to {rollout.to} waits: rollout.paused is true",
        ),
    }
    return [KubeEvent(*events[rollout.phase])] if rollout.phase in events else []


def _begun(old: RolloutStatus | None, new: RolloutStatus) -> list[KubeEvent]:
    if new.reason == Reason.ROLLBACK:
        text = f"rollout {new.id} rolls back from {new.from_version} to {new.to}: {new.message}"
        return [KubeEvent("Warning", "RollbackStarted", text)]
    events = []
    if old is not None and old.phase not in ENDED:
        text = f"rollout {old.id} to {old.to} superseded by {new.to}"
        events.append(KubeEvent("Normal", "RolloutSuperseded", text))
    text = f"rollout {new.id} from {new.from_version or 'no version'} to {new.to}"
    return [*events, KubeEvent("Normal", "RolloutStarted", text)]


def _completed(rollout: RolloutStatus, status: FleetStatus) -> str:
    text = f"rollout {rollout.id}: {status.proved} workers proved {rollout.to}"
    if rollout.seconds is not None:
        text += f" in {rollout.seconds} s"
    if rollout.timings and rollout.timings.window:
        text += f", longest pause {rollout.timings.window.max_ms} ms"
    return text


def _warnings(before: FleetStatus, after: FleetStatus) -> list[KubeEvent]:
    """Return one Event for each new reason of Stalled, and for waiting requests."""

    def warned(status: FleetStatus) -> dict[str, str]:
        return {
            c.reason: c.message
            for c in status.conditions
            if c.type == STALLED or (c.type == DEGRADED and c.reason == waiting_requests.REASON)
        }

    old = warned(before)
    return [
        KubeEvent("Warning", reason, message)
        for reason, message in warned(after).items()
        if reason not in old
    ]


def _rejected(before: FleetStatus, after: FleetStatus) -> list[KubeEvent]:
    """Return the Event of a rejected trainer; status changes only if it is another one."""
    trainer = after.trainer_rejected
    if trainer is None or trainer == before.trainer_rejected:
        return []
    text = (
        f"{trainer.worker} rejected {trainer.call} of trainer {trainer.client}: the fleet's target"
        f" is {after.target}. Remove spec.weightVersion and weights.follow, or set versions there"
    )
    return [KubeEvent("Warning", "TrainerRejected", text)]


def _adapters(before: FleetStatus, after: FleetStatus) -> list[KubeEvent]:
    old = {adapter.name: adapter for adapter in before.adapters}
    events = []
    for adapter in after.adapters:
        known = old.get(adapter.name)
        is_same = known is not None and known.version == adapter.version
        was_bad = is_same and known is not None and known.reason == adapter.reason
        was_done = is_same and known is not None and known.loaded_workers >= adapter.workers
        if adapter.reason and not was_bad:
            name = f"adapter {adapter.name} {adapter.version}"
            text = f"{name} failed to load: {adapter.reason}: {adapter.message}"
            events.append(KubeEvent("Warning", "AdapterFailed", text))
        if 0 < adapter.workers <= adapter.loaded_workers and not was_done:
            count = f"{adapter.workers} of {adapter.workers} workers"
            text = f"{count} serve adapter {adapter.name} {adapter.version}"
            events.append(KubeEvent("Normal", "AdapterLoaded", text))
    return events


def _exits(before: FleetStatus, after: FleetStatus) -> list[KubeEvent]:
    """Return the Events of engines that exited while they loaded a version."""
    old = {w.name: w.load_exits or 0 for w in before.workers}
    return [
        KubeEvent("Warning", "EngineExited", f"{w.name}: {w.message}")
        for w in after.workers
        if (w.load_exits or 0) > old.get(w.name, 0)
    ][:_NAMED_WORKERS]


def _workers(before: FleetStatus, after: FleetStatus) -> list[KubeEvent]:
    old = {w.name: w for w in before.workers}
    known = [(old[w.name], w) for w in after.workers if w.name in old]
    events = [event for one, worker in known for event in _transition(one, worker)]
    if len(events) > _NAMED_WORKERS:
        # A warning must not hide behind a worker that became ready.
        worst = next((event for event in events if event.type == "Warning"), events[0])
        text = f"{len(events)} workers changed state, for example: {worst.message}"
        return [KubeEvent(worst.type, "WorkersChanged", text)]
    return events


def _transition(old: WorkerStatus, new: WorkerStatus) -> list[KubeEvent]:
    """Return the Event of a worker that became ready, or stopped being ready."""
    if new.phase == Phase.QUARANTINED and old.phase != new.phase:
        text = f"{new.name} quarantined: {new.message or 'reload or proof failed'}"
        return [KubeEvent("Warning", "WorkerQuarantined", text)]
    if old.ready and not new.ready:
        return [_lost(new)]
    if new.ready and not old.ready:
        text = f"{new.name} ready, serves {new.version or 'an unknown version'}"
        return [KubeEvent("Normal", "WorkerReady", text)]
    return []


def _lost(worker: WorkerStatus) -> KubeEvent:
    if worker.phase == Phase.TERMINATING:
        # Deleted on purpose: by a scale-down, a new template, a drain.
        text = f"{worker.name} not ready: its pod is deleted"
        return KubeEvent("Normal", "WorkerDeleted", text)
    why = "taken out of traffic" if worker.phase == Phase.SERVING else f"phase {worker.phase}"
    return KubeEvent("Warning", "WorkerLost", f"{worker.name} not ready: {worker.message or why}")
