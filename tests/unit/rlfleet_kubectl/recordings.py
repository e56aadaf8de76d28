"""Fleets as a real operator wrote them, recorded from the integration tests' set-up."""

import copy
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rlfleet_kubectl.core.view import FleetView, moment

HERE = Path(__file__).parent / "recorded"


def fleet(name: str, **spec: Any) -> FleetView:
    """Return a recorded fleet, with ``spec`` laid over its own."""
    raw = json.loads((HERE / f"{name}.json").read_text())
    return FleetView(raw | {"spec": raw["spec"] | copy.deepcopy(spec)})


def with_status(found: FleetView, **status: Any) -> FleetView:
    """Return the fleet with other fields of status."""
    return FleetView(found.raw | {"status": found.status | status})


def with_rollout(found: FleetView, **fields: Any) -> FleetView:
    """Return the fleet with other fields of its rollout."""
    return with_status(found, rollout=found.status["rollout"] | fields)


def shortly_after(found: FleetView) -> datetime:
    """Return the time five seconds after the rollout began."""
    assert found.rollout is not None
    return (moment(found.rollout.started_at) + timedelta(seconds=5)).astimezone(UTC)
