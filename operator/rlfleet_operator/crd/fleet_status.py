"""The status of an RLInferenceFleet as models. The operator writes it and reads it back."""

from typing import Literal

from pydantic import Field

from rlfleet_contract.worker.commands import KVCache, PauseMode
from rlfleet_operator.crd.field_types import Model, Moment, epoch_of
from rlfleet_operator.crd.lora import AdapterStatus
from rlfleet_operator.crd.retention import RetentionStatus
from rlfleet_operator.crd.rollout_status import PastRollout, RolloutStatus
from rlfleet_operator.crd.selftest import SelfTestStatus


class WorkerStatus(Model):
    """The state of one worker; its Pod has the details."""

    name: str
    """Name of the worker and of its pod."""
    phase: str
    """Step of the worker's start or change, or Serving."""
    version: str | None = Field(default=None, description="Version that the worker has proved.")
    verified_by: list[str] | None = Field(
        default=None,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="Layers of the proof of `version` that hold. Installed: the engine read the"
        " checkpoint's bytes. Parameters: its memory was read back. Probe: its answers are finite"
        " and repeatable. Peers: another worker of the version gives the same answers. Faithful:"
        " its base gave the same answers after a reload. Sensitive: each kind of tensor changed"
        " the answers. Trainer: the trainer's own model gives the same answers.",
    )
    read_back_percent: int | None = Field(
        default=None,
        description="Share of the model that the engine read back from its memory for Parameters,"
        " in percent; only answers prove the rest. Absent if unknown.",
    )
    ready: bool = False
    """Whether the worker takes traffic."""
    load_exits: int | None = Field(
        default=None, description="How often the engine exited while it loaded its new version."
    )
    window_ms: int | None = Field(
        default=None, description="Pause window of the last change, in milliseconds."
    )
    adapters: list[str] | None = Field(
        default=None,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="Adapters that the worker serves, each as name=version.",
    )
    message: str | None = Field(default=None, max_length=256)
    """What is wrong with the worker; absent if nothing is known."""


class Condition(Model):
    """A condition as Kubernetes' API conventions define it."""

    type: str
    """Ready, WeightsSynced, Paused, EngineUntested, Reconciling, Stalled or Degraded."""
    status: Literal["True", "False", "Unknown"]
    """Whether the condition holds."""
    reason: str
    """Reason of `status`, in one word."""
    message: str
    """Reason of `status`, in a sentence."""
    last_transition_time: str
    """When `status` changed last."""
    observed_generation: int
    """The metadata.generation that the condition is about."""


class StoreVersion(Model):
    """A complete version in the trainer's store."""

    version: str
    """Its name."""
    run_id: str = ""
    """Run that the trainer's pointer names; empty without one."""
    since: str
    """When the operator learned of it or, of `followed`, took it up."""


class TrainerTarget(Model):
    """A version that a trainer requested through the fleet API."""

    version: str
    """Version that every worker must serve."""
    asked_at: str
    """When it was requested."""


class TrainerPause(Model):
    """A pause of the whole fleet that a trainer requested through the fleet API."""

    operation: str
    """Operation of its commands; each pause has another."""
    asked_at: str
    """When it was requested."""
    until: Moment
    """When it ends without another request; the workers then serve what they proved."""
    ttl_seconds: int
    """Seconds by which each of the trainer's requests extends it."""
    mode: PauseMode = PauseMode.KEEP
    """How requests in flight are handled, as in rollout.pauseMode."""
    kv_cache: KVCache = KVCache.RESET
    """Whether the workers empty their caches when they pause."""
    flushes: int = 0
    """How often the trainer requested to empty the caches."""
    version: str | None = Field(
        default=None,
        description="Version that the trainer requested during the pause. Only workers that proved"
        " it resume.",
    )
    refused: str | None = Field(
        default=None,
        max_length=1024,
        description="Why the trainer's last update was rejected; a resume is rejected as well.",
    )
    ending: bool = False
    """Whether the pause is over and the workers resume."""

    @property
    def until_epoch(self) -> float:
        """``until`` in seconds since the epoch."""
        return epoch_of(self.until)

    def is_about(self, version: str) -> bool:
        """Return whether the trainer's last request was for this version and was not rejected."""
        return self.version == version and self.refused is None

    @property
    def flush_operation(self) -> str:
        """The operation of the last flush that was requested."""
        return f"{self.operation}-flush-{self.flushes}"


class TrainerRejected(Model):
    """A trainer's call that a worker rejected because the fleet has a target."""

    worker: str
    """Worker that rejected it."""
    client: str
    """The trainer's address and User-Agent, as the worker saw them."""
    call: str
    """Method and path of the call."""
    at: Moment
    """When it was rejected."""

    @property
    def at_epoch(self) -> float:
        """``at`` in seconds since the epoch."""
        return epoch_of(self.at)


class FleetStatus(Model):
    """The observed state; only the operator writes it."""

    observed_generation: int = -1
    """The metadata.generation that this status is about; -1 until the operator has read it."""
    epoch: int = Field(
        default=0,
        description="Number of the operator's current driver of this fleet; sidecars reject"
        " commands of a lower epoch.",
    )
    replicas: int = Field(default=0, description="Number of workers that have a pod.")
    replacing: list[int] | None = Field(
        default=None,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="Ordinals whose pods are replaced because of a new template and are not ready"
        " again; they count for rollout.maxUnavailable.",
    )
    ready_replicas: int = Field(default=0, description="Number of workers that take traffic.")
    proved_replicas: int = Field(default=0, description="Number of workers that proved the target.")
    quarantined_replicas: int = 0
    """Number of workers in quarantine: out of service until a reload is proved."""
    selector: str = Field(default="", description="Label selector of the worker pods.")
    target: str = Field(
        default="",
        description="Requested version: spec.weightVersion, else that of `followed` or"
        " `trainerTarget`.",
    )
    latest: StoreVersion | None = Field(
        default=None,
        description="Newest complete version in the store, as the workers see it; only with"
        " weights.follow.",
    )
    followed: StoreVersion | None = Field(
        default=None,
        description="Version of the store that the fleet goes to without spec.weightVersion. Behind"
        " `latest` while its rollout gets on.",
    )
    retention: RetentionStatus | None = None
    trainer_target: TrainerTarget | None = Field(
        default=None,
        description="Version that a trainer requested through the fleet API. Has the effect of"
        " spec.weightVersion; removed when weightVersion or weights.follow is set.",
    )
    trainer_pause: TrainerPause | None = Field(
        default=None,
        description="Set while a trainer pauses the fleet; the operator then resumes no worker.",
    )
    trainer_rejected: TrainerRejected | None = Field(
        default=None,
        description="Last trainer that a worker rejected because the fleet has a target: the"
        " operator would undo the trainer's change. Removed when the fleet has no target.",
    )
    self_test: SelfTestStatus | None = Field(
        default=None,
        description="Result of the self-test of engines of the current pod template.",
    )
    token_revision: str | None = Field(
        default=None,
        description="Revision of the Secret with the fleet's token that the operator and every"
        " worker know; the one before while they differ. Only once the token was rotated.",
    )
    serving: str = Field(
        default="",
        description="Version that every worker with traffic has proved; empty while they differ.",
    )
    proved: str = Field(default="", description="Workers that proved the target, as 3/4.")
    skew: int | None = Field(
        default=None,
        description="Steps between the newest and the oldest version of a run that takes traffic.",
    )
    rollout: RolloutStatus | None = None
    history: list[PastRollout] = Field(
        default_factory=list,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="Earlier rollouts, the latest first.",
    )
    preview: list[str] = Field(
        default_factory=list,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="For rollout.dryRun: what a changed weightVersion would do.",
    )
    workers: list[WorkerStatus] = Field(
        default_factory=list,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="Workers; the worst first if statusWorkerLimit shortens the list.",
    )
    adapters: list[AdapterStatus] = Field(
        default_factory=list,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="State of each adapter of the spec.",
    )
    workers_truncated: int = Field(
        default=0, description="Number of workers that the list leaves out."
    )
    left_out: list[str] = Field(
        default_factory=list,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="Fields that this status leaves out because it would exceed 1 MiB.",
    )
    summary: str = Field(
        default="", description="State of the fleet in one line; the conditions have the reasons."
    )
    conditions: list[Condition] = Field(
        default_factory=list,
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )
    """Ready and WeightsSynced always; Paused, EngineUntested, Reconciling, Stalled and Degraded
    only while they are true."""
