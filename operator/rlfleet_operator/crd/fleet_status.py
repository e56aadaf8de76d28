"""The status of an RLInferenceFleet as models: what is; written by the operator alone."""

from typing import Literal

from pydantic import Field

from rlfleet_contract.worker.commands import KVCache, PauseMode
from rlfleet_operator.crd.field_types import Model, Moment, epoch_of
from rlfleet_operator.crd.lora import AdapterStatus
from rlfleet_operator.crd.selftest import SelfTestStatus
from rlfleet_operator.crd.timings import RolloutTimings

SETTLE_S = 3.0
"""How long a version must be the newest: twenty patches in a row cost a worker two changes."""


class RolloutStatus(Model):
    """The newest rollout, recorded before its first side effect."""

    id: int = Field(description="Counts rollouts: A, B, A are three.")
    reason: str = Field(
        default="Spec",
        description="Spec (weightVersion was changed), Trainer (through the fleet API),"
        " Restart or Rollback.",
    )
    asked: str = Field(
        default="", description="The target that it answers; `to`, but for a rollback."
    )
    from_version: str = Field(default="", alias="from")
    """The version that was served when it began; empty if none was."""
    to: str
    """The version that it leads to."""
    phase: str = Field(
        description="Waiting (for pods), Preparing, Pausing, Flushing, Reloading, Verifying,"
        " Resuming, Updating (between two batches), Paused, CanaryHold, Partitioned, Refused,"
        " Completed, RolledBack, Failed, Held or Superseded (its version left the spec)."
    )
    message: str = Field(default="", max_length=1024)
    """The first refusal or failure of `to`, in the worker's words, or why it was rolled back."""
    started_at: Moment
    """When it was recorded."""
    not_before: Moment | None = Field(
        default=None,
        description="No worker that serves is taken out before this time: it followed so quickly"
        " on another rollout that the next change may be on its way.",
    )
    finished_at: str | None = None
    """When it ended."""
    seconds: float | None = Field(default=None, description="From start to end.")
    held_since: Moment | None = None
    """Since when it is held: paused, or waiting for its canaries."""
    held_seconds: int = 0
    """How long it was held before; does not count for the progress deadline."""
    canary_since: Moment | None = None
    """Since when its canaries serve without a break."""
    restart_id: str = ""
    """The rollout.restartId that it answers."""
    run_id: str = ""
    """The weights.runId of `asked`."""
    step: int | None = None
    """The weights.step of `asked`."""
    timings: RolloutTimings | None = None
    prepared_bytes: int | None = Field(
        default=None, description="The bytes that each worker read for it; told with `timings`."
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
        """Return for how many seconds ``not_before`` still holds workers back.

        None, if that is longer than it was meant to be: the clock has stepped back.
        """
        left = epoch_of(self.not_before) - moment if self.not_before else 0.0
        return left if 0.0 < left <= SETTLE_S else 0.0

    def spent_s(self, moment: float) -> float:
        """Return for how many seconds it was under way until then."""
        return max(0.0, moment - self.started_epoch)

    def held_s(self, moment: float) -> float:
        """Return for how many seconds it was held until then."""
        running = moment - epoch_of(self.held_since) if self.held_since else 0.0
        return self.held_seconds + max(0.0, running)


class PastRollout(Model):
    """A rollout that has ended, or gave way to the next."""

    id: int
    """Its id."""
    reason: str = "Spec"
    """Spec, Trainer, Restart or Rollback."""
    from_version: str = Field(default="", alias="from")
    """The version that was served when it began."""
    to: str
    """The version that it led to."""
    result: str
    """Completed, RolledBack, Failed, Held or Superseded."""
    started_at: str
    """When it began."""
    seconds: float
    """From start to end."""
    window_ms: int | None = Field(
        default=None, description="The median pause window of its workers, in milliseconds."
    )
    message: str = Field(default="", max_length=256)
    """Why it did not complete."""
    run_id: str = ""
    """The weights.runId that was declared with it."""
    step: int | None = None
    """The weights.step that was declared with it."""
    prepared_bytes: int | None = Field(
        default=None, description="The bytes that each worker read for it."
    )


class WorkerStatus(Model):
    """One worker, in few words; its Pod tells more."""

    name: str
    """The worker's name, which is its pod's too."""
    phase: str
    """Where it stands."""
    version: str | None = Field(default=None, description="What it proved to serve.")
    verified_by: list[str] | None = Field(
        default=None,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="Which layers of the proof of `version` held: Installed (the engine consumed"
        " the checkpoint's bytes), Parameters (its memory was read back), Probe (it answers"
        " finitely and steadily), Peers (as another worker of the version does),"
        " Faithful (its base, reloaded, answered as booted), Sensitive (each kind of tensor moved"
        " the answers), Trainer (it answers as the trainer says its own model does).",
    )
    read_back_percent: int | None = Field(
        default=None,
        description="How much of its model the engine read back from its memory for Parameters, in"
        " percent; what is missing is vouched for by answers alone. Absent when unknown.",
    )
    ready: bool = False
    """Whether it takes traffic."""
    load_exits: int | None = Field(
        default=None,
        description="How often its engine exited while it loaded the version that it tries.",
    )
    window_ms: int | None = Field(
        default=None, description="The pause window of its last change, in milliseconds."
    )
    adapters: list[str] | None = Field(
        default=None,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="The adapters that it serves, each as name=version.",
    )
    message: str | None = Field(default=None, max_length=256)
    """What is wrong with it, if anything is known to be."""


class Condition(Model):
    """A condition as Kubernetes' API conventions define it."""

    type: str
    """Ready, WeightsSynced, Paused, EngineUntested, Reconciling, Stalled or Degraded."""
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


class TrainerTarget(Model):
    """A version that a trainer asked for through the fleet API."""

    version: str
    """The version that every worker shall serve."""
    asked_at: str
    """When it was asked for."""


class TrainerPause(Model):
    """A pause of the whole fleet that a trainer asked for through the fleet API."""

    operation: str
    """The operation of its commands; another pause has another."""
    asked_at: str
    """When it was asked for."""
    until: Moment
    """When it ends if its trainer asks for nothing more: the workers serve what they proved."""
    ttl_seconds: int
    """For how long each of its trainer's requests keeps it."""
    mode: PauseMode = PauseMode.KEEP
    """What becomes of requests in flight."""
    kv_cache: KVCache = KVCache.RESET
    """What becomes of the caches when the workers pause."""
    flushes: int = 0
    """How often its trainer asked for the caches to be emptied."""
    version: str | None = Field(
        default=None,
        description="The version that its trainer asked for since then. Only workers that proved it"
        " are resumed.",
    )
    refused: str | None = Field(
        default=None,
        max_length=1024,
        description="Why its trainer's last update was refused; a resume is refused with it.",
    )
    ending: bool = False
    """Whether it is over, and the workers are on their way back to serving."""

    @property
    def until_epoch(self) -> float:
        """``until`` in seconds since the epoch."""
        return epoch_of(self.until)

    def is_about(self, version: str) -> bool:
        """Tell whether this version is what its trainer asked for last, and it was not refused."""
        return self.version == version and self.refused is None

    @property
    def flush_operation(self) -> str:
        """The operation of the flush that was asked for last."""
        return f"{self.operation}-flush-{self.flushes}"


class TrainerRejected(Model):
    """A trainer's call that a worker rejected because the fleet is asked for a version."""

    worker: str
    """The worker that rejected it."""
    client: str
    """The trainer's address and User-Agent, as the worker saw them."""
    call: str
    """Method and path."""
    at: Moment
    """When."""

    @property
    def at_epoch(self) -> float:
        """``at`` in seconds since the epoch."""
        return epoch_of(self.at)


class FleetStatus(Model):
    """What is; written by the operator alone."""

    observed_generation: int = -1
    """The metadata.generation that this status is about; -1 before the operator has seen it."""
    epoch: int = Field(
        default=0,
        description="Counts the drivers that took the fleet over; a sidecar carries out nothing of"
        " a lower one.",
    )
    replicas: int = Field(default=0, description="Workers that exist.")
    replacing: list[int] | None = Field(
        default=None,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="The ordinals whose pods the operator deleted for a new template, until their"
        " successors were ready: they are charged to rollout.maxUnavailable.",
    )
    ready_replicas: int = Field(default=0, description="Workers that take traffic.")
    proved_replicas: int = Field(default=0, description="Workers that proved the target.")
    quarantined_replicas: int = 0
    """Workers whose engine is in doubt: out of service until a good version is proved."""
    selector: str = Field(default="", description="Label selector of the worker pods.")
    target: str = Field(
        default="",
        description="The version that is asked for: spec.weightVersion, else trainerTarget.",
    )
    trainer_target: TrainerTarget | None = Field(
        default=None,
        description="What a trainer asked for through the fleet API. It counts as weightVersion"
        " does, until the spec names one: then it is gone.",
    )
    trainer_pause: TrainerPause | None = Field(
        default=None,
        description="Set while a trainer has paused the fleet;"
        " the operator then resumes no worker.",
    )
    trainer_rejected: TrainerRejected | None = Field(
        default=None,
        description="The last trainer that a worker rejected: the fleet is asked for a version, and"
        " the operator would undo the trainer's change. Gone when the fleet is asked for none.",
    )
    self_test: SelfTestStatus | None = Field(
        default=None,
        description="What the engines of the present pod template showed of their reload in place"
        " before they served.",
    )
    serving: str = Field(
        default="",
        description="The version that every worker that takes traffic has proved;"
        " empty while they differ.",
    )
    proved: str = Field(default="", description="Workers that proved the target, of all.")
    skew: int | None = Field(
        default=None,
        description="Steps between the newest and the oldest version of a run that takes traffic.",
    )
    rollout: RolloutStatus | None = None
    history: list[PastRollout] = Field(
        default_factory=list,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="Rollouts before the newest, the latest first.",
    )
    preview: list[str] = Field(
        default_factory=list,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="With rollout.dryRun: what a changed weightVersion would do.",
    )
    workers: list[WorkerStatus] = Field(
        default_factory=list,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="Worst first when statusWorkerLimit cuts the list.",
    )
    adapters: list[AdapterStatus] = Field(
        default_factory=list,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="How each adapter of the spec stands.",
    )
    workers_truncated: int = Field(default=0, description="How many workers the list leaves out.")
    left_out: list[str] = Field(
        default_factory=list,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="What this status leaves out because it would not fit into 1 MiB.",
    )
    summary: str = Field(
        default="", description="How the fleet stands, in one short line; the conditions say why."
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
