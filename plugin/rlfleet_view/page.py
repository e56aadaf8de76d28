"""A fleet as JSON for the page: everything that it shows is decided here, and nothing in it.

Times are those of the status, in ISO 8601; the browser only counts the seconds since. A field that
status does not have is null or absent, and the page then shows no figure.
"""

from rlfleet_view import progress, reasons
from rlfleet_view.fleet import ConditionRow, ObservedFleet, RawObject, RolloutRow, WorkerRow
from rlfleet_view.reasons import Reasons
from rlfleet_view.tone import Tone, tone_of
from rlfleet_view.verdict import SyncState, judged, summary

ALERTS = ("Stalled", "Degraded", "EngineUntested", "Paused")
"""Conditions that say what to do about something, in this order."""
_STATES = {SyncState.SYNCED: Tone.GOOD, SyncState.STALLED: Tone.BAD}
_STEPS = ("prepare", "pause", "flush", "reload", "verify", "resume", "window")
_WINDOWS = 20
"""How many rollouts the chart of windows has."""


def page_of(fleet: ObservedFleet, known: Reasons) -> RawObject:
    """Return a fleet as the page shows it; ``known`` says what to do about each reason."""
    found, rollout = judged(fleet), fleet.rollout
    return {
        "key": f"{fleet.namespace}/{fleet.name}",
        "name": fleet.name,
        "namespace": fleet.namespace,
        "generation": fleet.generation,
        "state": found.state,
        "tone": _STATES.get(found.state, Tone.BUSY),
        "summary": summary(fleet),
        "alerts": _alerts(fleet, known),
        "facts": _facts(fleet),
        "rollout": None if rollout is None else _rollout(fleet, rollout),
        "workers": [_worker(row) for row in fleet.workers],
        "leftOut": fleet.left_out,
        "windows": [_past(row) for row in fleet.rollouts if row.window_ms is not None][:_WINDOWS],
        "history": [_past(row) for row in fleet.rollouts],
        "conditions": [_condition(fleet, row) for row in fleet.conditions],
    }


def _alerts(fleet: ObservedFleet, known: Reasons) -> list[RawObject]:
    found = {row.type: row for row in fleet.conditions if row.type in ALERTS and row.is_true}
    return [
        {
            "type": row.type,
            "reason": row.reason,
            "message": row.message,
            "todo": reasons.actions(known, row.reason),
            "tone": Tone.BUSY if row.type == "Paused" else Tone.BAD,
        }
        for row in (found[kind] for kind in ALERTS if kind in found)
    ]


def _facts(fleet: ObservedFleet) -> list[RawObject]:
    """Return the figures at the top, each with what it is about."""
    latest = (fleet.status.get("latest") or {}).get("version")
    ready = int(fleet.status.get("readyReplicas") or 0)
    proved = int(fleet.status.get("provedReplicas") or 0)
    facts = [
        ("Target", fleet.asked or None, fleet.source),
        ("Serving", fleet.serving or None, "all workers" if fleet.serving else "workers differ"),
        ("In traffic", f"{ready} of {fleet.replicas}", "workers"),
        ("Proved", f"{proved} of {fleet.replicas}", "workers, the target"),
    ]
    if latest:
        facts.append(("Newest in the store", latest, "complete version"))
    skew = fleet.status.get("skew")
    if skew is not None:
        facts.append(("Skew", str(skew), "steps between versions in traffic"))
    return [{"name": name, "value": value, "about": about} for name, value, about in facts]


def _rollout(fleet: ObservedFleet, row: RolloutRow) -> RawObject:
    timings = (fleet.status.get("rollout") or {}).get("timings") or {}
    is_stalled = fleet.is_true("Stalled")
    return {
        **_past(row),
        "strategy": str(fleet.spec_at("rollout.strategy") or "Rolling"),
        "underWay": row.is_under_way,
        # While it is stalled, the alert has it.
        "message": "" if is_stalled else row.message,
        "now": _moving(fleet),
        "bars": _bars(fleet, row),
        "steps": [{"name": name, **timings[name]} for name in _STEPS if timings.get(name)],
    }


def _moving(fleet: ObservedFleet) -> str:
    """Return what the operator is at."""
    moving = fleet.condition("Reconciling")
    return f"{moving.reason}: {moving.message}" if moving is not None and moving.is_true else ""


def _bars(fleet: ObservedFleet, row: RolloutRow) -> list[RawObject]:
    found = [("Prepared", progress.prepared(row))]
    # The count is of the target, which may have moved on.
    if fleet.target == row.to:
        found.append(("Proved", progress.proved(fleet)))
    return [
        {"name": name, "done": round(share.done, 4), "text": share.text}
        for name, share in found
        if share is not None
    ]


def _past(row: RolloutRow) -> RawObject:
    return {
        "id": row.id,
        "reason": row.reason,
        "from": row.before or "none",
        "to": row.to,
        "phase": row.phase,
        "tone": tone_of(row.phase),
        "startedAt": row.started_at,
        "seconds": row.seconds,
        "windowMs": row.window_ms,
        "bytes": None if row.prepared_bytes is None else progress.size(row.prepared_bytes),
        "message": row.message,
    }


def _worker(row: WorkerRow) -> RawObject:
    return {
        "name": row.name,
        "phase": row.phase,
        "tone": Tone.BUSY if row.phase == "Serving" and not row.is_ready else tone_of(row.phase),
        "version": row.version,
        "ready": row.is_ready,
        "windowMs": row.window_ms,
        "proof": list(row.layers),
        "adapters": list(row.adapters),
        "message": row.message,
    }


def _condition(fleet: ObservedFleet, row: ConditionRow) -> RawObject:
    return {
        "type": row.type,
        "status": row.status,
        "reason": row.reason,
        "message": row.message,
        "current": row.generation >= fleet.generation,
    }
