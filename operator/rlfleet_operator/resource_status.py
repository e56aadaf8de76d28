"""The status of an RLInferenceFleet as models: what is; written by the operator alone."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from rlfleet_operator.fields import Model


class Spread(Model):
    """A time over the workers of a rollout, in milliseconds."""

    min_ms: int
    """Of the quickest worker."""
    median_ms: int
    """The median."""
    max_ms: int
    """Of the slowest worker."""


class RolloutTimings(Model):
    """How long the steps of a rollout took; `window` is gate closed to gate open."""

    prepare: Spread | None = None
    pause: Spread | None = None
    flush: Spread | None = None
    reload: Spread | None = None
    verify: Spread | None = None
    resume: Spread | None = None
    window: Spread | None = None


class RolloutStatus(Model):
    """The newest rollout, recorded before its first side effect."""

    id: int = Field(description="Counts rollouts: A, B, A are three.")
    from_version: str = Field(default="", alias="from")
    """The version that was served when it began; empty if none was."""
    to: str
    """The version that it leads to."""
    phase: str = Field(
        description="Waiting (for pods), Preparing, Pausing, Flushing, Reloading, Verifying,"
        " Resuming, Updating (between two batches), Refused, Completed or Failed."
    )
    message: str = Field(default="", max_length=1024)
    """The first refusal or failure of `to`, in the worker's words."""
    started_at: str
    """When it was recorded."""
    finished_at: str | None = None
    """When it became Completed or Failed."""
    seconds: float | None = Field(default=None, description="From start to end.")
    timings: RolloutTimings | None = None

    @property
    def started_epoch(self) -> float:
        """``started_at`` in seconds since the epoch."""
        return datetime.fromisoformat(self.started_at).timestamp()


class WorkerStatus(Model):
    """One worker, in few words; its Pod tells more."""

    name: str
    """The worker's name, which is its pod's too."""
    phase: str
    """Where it stands."""
    version: str | None = Field(default=None, description="What it proved to serve.")
    ready: bool = False
    """Whether it takes traffic."""
    window_ms: int | None = Field(
        default=None, description="The pause window of its last change, in milliseconds."
    )
    message: str | None = Field(default=None, max_length=256)
    """What is wrong with it, if anything is known to be."""


class Condition(Model):
    """A condition as Kubernetes' API conventions define it."""

    type: str
    """Ready, WeightsSynced, Reconciling or Stalled."""
    status: Literal["True", "False", "Unknown"]
    """Whether it is so."""
    reason: str
    """Why, in one word."""
    message: str
    """Why, in a sentence."""
    last_transition_time: str
    """When `status` changed last."""
    observed_generation: int
    """The metadata.generation that it is about."""


class FleetStatus(Model):
    """What is; written by the operator alone."""

    observed_generation: int = -1
    """The metadata.generation that this status is about; -1 before the operator has seen it."""
    replicas: int = Field(default=0, description="Workers that exist.")
    ready_replicas: int = Field(default=0, description="Workers that take traffic.")
    proved_replicas: int = Field(default=0, description="Workers that proved the target.")
    quarantined_replicas: int = 0
    """Workers whose engine is in doubt: out of service until a good version is proved."""
    selector: str = Field(default="", description="Label selector of the worker pods.")
    target: str = Field(default="", description="The version that was asked for.")
    serving: str = Field(
        default="",
        description="The version that every worker that takes traffic has proved;"
        " empty while they differ.",
    )
    proved: str = Field(default="", description="Workers that proved the target, of all.")
    rollout: RolloutStatus | None = None
    workers: list[WorkerStatus] = Field(
        default_factory=list,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="Worst first when statusWorkerLimit cuts the list.",
    )
    workers_truncated: int = Field(default=0, description="How many workers the list leaves out.")
    conditions: list[Condition] = Field(
        default_factory=list,
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )
    """Ready and WeightsSynced always; Reconciling and Stalled only while they are true."""
