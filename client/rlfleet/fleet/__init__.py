"""Drives a fleet from a trainer, and waits until weights are proved.

FleetClient asks the operator's fleet API; SpecClient sets spec.weightVersion of the fleet's object.
"""

try:
    from rlfleet.fleet.async_client import AsyncFleetClient
    from rlfleet.fleet.async_spec_client import AsyncSpecClient
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
    from rlfleet.fleet.spec_client import SpecClient
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"{error.name} is not installed; run pip install 'rlfleet[fleet]'", name=error.name
    ) from error

__all__ = [
    "AsyncFleetClient",
    "AsyncSpecClient",
    "ChangeConflictError",
    "ChangeResult",
    "FleetClient",
    "FleetError",
    "FleetState",
    "FleetUnreachableError",
    "FleetWorker",
    "NotProvedError",
    "RolloutState",
    "SpecClient",
    "VersionOwnedError",
    "VersionSupersededError",
    "WaitTimeoutError",
]
