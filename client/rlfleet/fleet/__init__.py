"""Drives a fleet from a trainer by the operator's fleet API, and waits until weights are proved."""

from rlfleet.fleet.async_client import AsyncFleetClient
from rlfleet.fleet.client import FleetClient
from rlfleet.fleet.errors import (
    ChangeConflictError,
    FleetError,
    FleetUnreachableError,
    NotProvedError,
    VersionOwnedError,
    VersionSupersededError,
    WaitTimeoutError,
)
from rlfleet.fleet.replies import ChangeResult, FleetState, FleetWorker, RolloutState

__all__ = [
    "AsyncFleetClient",
    "ChangeConflictError",
    "ChangeResult",
    "FleetClient",
    "FleetError",
    "FleetState",
    "FleetUnreachableError",
    "FleetWorker",
    "NotProvedError",
    "RolloutState",
    "VersionOwnedError",
    "VersionSupersededError",
    "WaitTimeoutError",
]
