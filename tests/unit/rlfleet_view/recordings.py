"""Fleets as a real operator wrote them, recorded from the integration tests' set-up."""

import copy
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rlfleet_view.fleet import ObservedFleet, moment

HERE = Path(__file__).parent / "recorded"


def fleet(name: str, **spec: Any) -> ObservedFleet:
    """Return a recorded fleet, with ``spec`` laid over its own."""
    raw = json.loads((HERE / f"{name}.json").read_text())
    return ObservedFleet(raw | {"spec": raw["spec"] | copy.deepcopy(spec)})


def with_status(found: ObservedFleet, **status: Any) -> ObservedFleet:
    """Return the fleet with other fields of status."""
    return ObservedFleet(found.raw | {"status": found.status | status})


def with_deletion(found: ObservedFleet) -> ObservedFleet:
    """Return the fleet as its deletion leaves it, which another's finalizer holds up."""
    metadata = found.raw["metadata"]
    held = {"deletionTimestamp": "2026-11-25T02:00:00Z", "finalizers": ["example.com/keep"]}
    after = metadata | held | {"generation": metadata["generation"] + 1}
    return ObservedFleet(found.raw | {"metadata": after})


HALF_COPIED: dict[str, Any] = {
    "percent": 50,
    "totalBytes": 2 * 1024**3,
    "bytesPerSecond": 200 * 1024**2,
    "secondsLeft": 8,
    "workers": 2,
}
"""`status.rollout.copies` while two workers copy."""


def with_rollout(found: ObservedFleet, **fields: Any) -> ObservedFleet:
    """Return the fleet with other fields of its rollout."""
    return with_status(found, rollout=found.status["rollout"] | fields)


def shortly_after(found: ObservedFleet) -> datetime:
    """Return the time five seconds after the rollout began."""
    assert found.rollout is not None
    return (moment(found.rollout.started_at) + timedelta(seconds=5)).astimezone(UTC)
