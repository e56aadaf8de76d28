"""Why a fleet did not do what its trainer requested."""

from collections.abc import Sequence

from rlfleet.fleet.replies import FleetWorker


class FleetError(Exception):
    """A request failed. ``code`` is the fleet API's (docs/how-to/fleet-api.md)."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        status: int | None = None,
        workers: Sequence[FleetWorker] = (),
    ) -> None:
        """``status`` is HTTP's, None without a reply; ``workers`` are those of the reply."""
        super().__init__(f"{code}: {message}" if code else message)
        self.code, self.status, self.workers = code, status, tuple(workers)


class FleetUnreachableError(FleetError):
    """No operator answered in time. What was requested may continue."""


class WaitTimeoutError(FleetError):
    """The time is over and the rollout continues; the same request waits for it again."""


class NotProvedError(FleetError):
    """Workers did not prove the version, and a repeat does not help; see ``workers``."""


class ChangeConflictError(FleetError):
    """The fleet's state or spec does not allow the request (HTTP 409)."""


class VersionOwnedError(ChangeConflictError):
    """spec.weightVersion or spec.weights.follow sets the version."""


class VersionSupersededError(ChangeConflictError):
    """A newer request named another version."""


_BY_CODE: dict[str, type[FleetError]] = {
    "VersionOwned": VersionOwnedError,
    "Superseded": VersionSupersededError,
    "NotProved": NotProvedError,
}
_CONFLICT = 409


def error_of(
    message: str, *, code: str, status: int, workers: Sequence[FleetWorker] = ()
) -> FleetError:
    """Return the error for a reply that was not 200."""
    general = ChangeConflictError if status == _CONFLICT else FleetError
    return _BY_CODE.get(code, general)(message, code=code, status=status, workers=workers)
