"""The status of an RLInferenceFleet as models. The operator writes it and reads it back."""

from typing import Literal

from pydantic import Field

from rlfleet_contract.worker.commands import KVCache, PauseMode
from rlfleet_operator.crd.field_types import Model, Moment, epoch_of
from rlfleet_operator.crd.lora import AdapterStatus
from rlfleet_operator.crd.retention import RetentionStatus
from rlfleet_operator.crd.selftest import SelfTestStatus


class Spread(Model):
    """A duration on the workers of a rollout, in milliseconds."""

    min_ms: int
    """Fastest worker."""
    median_ms: int
    """Median of the workers."""
    max_ms: int
    """Slowest worker."""


class RolloutTimings(Model):
    """Durations of a rollout's steps; `window` is gate closed to gate open."""

    prepare: Spread | None = None
    pause: Spread | None = None
    flush: Spread | None = None
    reload: Spread | None = None
    verify: Spread | None = None
    resume: Spread | None = None
    window: Spread | None = None


SETTLE_S = 3.0
"""Seconds for which a version must be the newest: twenty quick patches cost two changes."""


class RolloutStatus(Model):
    """The newest rollout, recorded before its first side effect."""

    id: int = Field(description="Number of the rollout: changes to A, B and A are three rollouts.")
    reason: str = Field(
        default="Spec",
        description="Spec (weightVersion was changed), Trainer (through the fleet API), Follow"
        " (a newer version in the store),"
        " Restart (restartId was changed) or Rollback.",
    )
    asked: str = Field(
        default="", description="Requested version; differs from `to` only in a rollback."
    )
    from_version: str = Field(default="", alias="from")
    """Version that was served when the rollout began; empty if none was."""
    to: str
    """Version that the workers change to."""
    phase: str = Field(
        description="Waiting (for pods), Preparing, Pausing, Flushing, Reloading, Verifying,"
        " Resuming, Updating (between two batches), Paused, CanaryHold, Partitioned, Refused,"
        " Completed, RolledBack, Failed, Held or Superseded (by another version, or by none)."
    )
    message: str = Field(default="", max_length=1024)
    """First rejection or failure of `to` on a worker, or the reason of the rollback."""
    started_at: Moment
    """When it was recorded."""
    not_before: Moment | None = Field(
        default=None,
        description="Serving workers do not change before this time. Set when the rollout quickly"
        " followed another, because yet another may follow.",
    )
    finished_at: str | None = None
    """When it ended."""
    seconds: float | None = Field(default=None, description="Duration from start to end.")
    held_since: Moment | None = None
    """When the current hold began: rollout.paused, or canaries."""
    held_seconds: int = 0
    """Seconds of earlier holds; they do not count for the progress deadline."""
    canary_since: Moment | None = None
    """Time since which its canaries serve without a break."""
    restart_id: str = ""
    """The rollout.restartId of its start."""
    run_id: str = ""
    """The weights.runId of `asked`."""
    step: int | None = None
    """The weights.step of `asked`."""
    timings: RolloutTimings | None = None
    prepared_bytes: int | None = Field(
        default=None, description="Bytes that each worker read; updated together with `timings`."
    )

    @property
    def started_epoch(self) -> float:
        """``started_at`` in seconds since the epoch."""
        return epoch_of(self.started_at)

    @property
    def canary_epoch(self) -> float | None:
        """``canary_since`` in seconds since the epoch."""
        return epoch_of(self.canary_since) if self.canary_since else None

    def settles_in_s(self, moment: float) -> float:
        """Return for how many seconds serving workers must not change yet; 0 after a clock step."""
        left = epoch_of(self.not_before) - moment if self.not_before else 0.0
        return left if 0.0 < left <= SETTLE_S else 0.0

    def spent_s(self, moment: float) -> float:
        """Return the seconds from the start until ``moment``, on hold or not."""
        return max(0.0, moment - self.started_epoch)

    def held_s(self, moment: float) -> float:
        """Return the seconds on hold until ``moment``."""
        running = moment - epoch_of(self.held_since) if self.held_since else 0.0
        return self.held_seconds + max(0.0, running)


class PastRollout(Model):
    """A rollout that has ended, or was superseded by the next."""

    id: int
    """Number of the rollout."""
    reason: str = "Spec"
    """Spec, Trainer, Follow, Restart or Rollback."""
    from_version: str = Field(default="", alias="from")
    """Version that was served when it began."""
    to: str
    """Version that the workers changed to."""
    result: str
    """Completed, RolledBack, Failed, Held or Superseded."""
    started_at: str
    """When it began."""
    seconds: float
    """Duration from start to end."""
    window_ms: int | None = Field(
        default=None, description="Median pause window of its workers, in milliseconds."
    )
    message: str = Field(default="", max_length=256)
    """Why it did not complete."""
    run_id: str = ""
    """The weights.runId of its version."""
    step: int | None = None
    """The weights.step of its version."""
    prepared_bytes: int | None = Field(default=None, description="Bytes that each worker read.")


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
