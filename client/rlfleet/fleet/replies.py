"""What the fleet API replies. Unknown fields are ignored, so that a newer operator may add some."""

from pydantic import BaseModel, ConfigDict


class _Reply(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class FleetWorker(_Reply):
    """One worker, as its sidecar reports it."""

    name: str
    status: str
    """"ok", or "error"; of an update: whether it proved the version."""
    ready: bool = False
    """Whether it takes traffic."""
    stage: str | None = None
    version: str | None = None
    """The version that it proved."""
    paused: bool | None = None
    in_flight: int | None = None
    """Requests in its engine or at its gate."""
    message: str | None = None
    """What is wrong with it."""


class RolloutState(_Reply):
    """The newest rollout."""

    id: int
    to: str
    phase: str
    message: str


class ChangeResult(_Reply):
    """The reply to an update, a pause, a flush or a resume."""

    status: str
    code: str | None = None
    message: str = ""
    retryable: bool = False
    version: str | None = None
    rollout: RolloutState | None = None
    workers: tuple[FleetWorker, ...] = ()


class FleetState(_Reply):
    """The fleet now."""

    namespace: str
    fleet: str
    ready: bool
    """Whether every worker takes traffic with a proved version."""
    paused: bool
    paused_by: str | None = None
    paused_until: str | None = None
    """When a pause ends without another request, ISO 8601."""
    in_flight: int = 0
    desired_version: str | None = None
    desired_by: str | None = None
    applied_version: str | None = None
    """The version that every worker proved; None while they differ or one is silent."""
    rollout: RolloutState | None = None
    workers: tuple[FleetWorker, ...] = ()
