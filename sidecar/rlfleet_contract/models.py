"""Requests, replies and the worker's report: one model, one meaning.

The server returns it, the client parses it, the tests build it.
"""

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from rlfleet_contract import paths
from rlfleet_contract.fence import Fence
from rlfleet_contract.loaded_lora import AdapterReport
from rlfleet_contract.paths import (
    CONTRACT_VERSION,
    DEFAULT_TTL_S,
    DIGEST_PATTERN,
    MAX_TTL_S,
    VERSION_PATTERN,
)
from rlfleet_contract.problems import Problem
from rlfleet_contract.proof import Proof
from rlfleet_contract.schema import ContractReply, ContractRequest
from rlfleet_contract.selftest import SelfTest
from rlfleet_contract.target import RejectedTrainer
from rlfleet_contract.tensor_names import Experts, Renames

Version = Annotated[str, StringConstraints(pattern=VERSION_PATTERN)]
Operation = Annotated[str, StringConstraints(min_length=1, max_length=128)]
TimeToLive = Annotated[float, Field(gt=0, le=MAX_TTL_S)]
ManifestDigest = Annotated[str, StringConstraints(pattern=DIGEST_PATTERN)]


class PauseMode(StrEnum):
    """What becomes of requests in flight (vLLM's /pause modes)."""

    KEEP = "Keep"
    """They freeze and go on afterwards, with the new weights."""
    WAIT = "Wait"
    """They end first, with the old weights."""
    ABORT = "Abort"
    """They end at once, marked as aborted."""


class KVCache(StrEnum):
    """What becomes of the KV and prefix cache."""

    RESET = "Reset"
    PRESERVE = "Preserve"


class Stage(StrEnum):
    """Where a worker stands; rlfleet_sidecar.state.stage_machine holds the table of its changes."""

    DOWN = "Down"
    """The engine does not answer."""
    CLOSED = "Closed"
    """The engine runs behind a closed gate; what it was loaded with is not proved."""
    OPEN = "Open"
    """The engine serves a proved version."""
    PAUSED = "Paused"
    """Gate closed and engine paused, before anything was loaded."""
    LOADING = "Loading"
    """The reload has begun and has not ended."""
    LOADED = "Loaded"
    """The reload ended well; nothing is proved yet."""
    PROVED = "Proved"
    """The installed weights are proved; the gate is still closed."""
    DOUBT = "Doubt"
    """A reload or its proof failed: nobody knows what the engine holds."""


class Verb(StrEnum):
    """What a caller can ask of a sidecar."""

    PREPARE = "Prepare"
    PAUSE = "Pause"
    FLUSH = "Flush"
    RELOAD = "Reload"
    VERIFY = "Verify"
    RESUME = "Resume"
    ADAPT = "Adapt"
    """Load, replace or unload an adapter; no step of a change of weights."""


BESIDE = frozenset({Verb.PREPARE, Verb.ADAPT})
"""What goes on while the worker serves."""


class Timeouts(ContractRequest):
    """How long each step may take, in seconds."""

    pause_s: float = Field(default=60, gt=0)
    flush_s: float = Field(default=30, gt=0)
    reload_s: float = Field(default=600, gt=0)
    verify_s: float = Field(default=60, gt=0)
    resume_s: float = Field(default=30, gt=0)


class Command(ContractRequest):
    """What every command carries: whose it is and what it is about.

    A command is one class: where it is sent, what it counts as, and how long it may take.
    """

    PATH: ClassVar[str]
    METHOD: ClassVar[str] = "POST"
    VERB: ClassVar[Verb]
    """What it counts as while it is carried out."""

    operation: Operation
    """The rollout's id. A command repeated under it has one effect and one answer."""
    version: Version
    fence: Fence | None = None
    """None from a caller that is no operator: a trainer or a person."""

    @property
    def limit_s(self) -> float:
        """How long the worker may take to answer, in seconds."""
        raise NotImplementedError


class TimedCommand(Command):
    """A command whose one limit is its own."""

    timeout_s: float = Field(default=30, gt=0)

    @property
    def limit_s(self) -> float:
        """How long the worker may take to answer, in seconds."""
        return self.timeout_s


class PrepareRequest(TimedCommand):
    """Wait until the version is complete, check it, stage it. The engine goes on.

    A prepare of another version takes its place; a change of weights does not wait for it.
    """

    PATH = paths.PREPARE_PATH
    VERB = Verb.PREPARE

    timeout_s: float = Field(default=120, gt=0)
    """How long all of it may take."""
    wait_s: float | None = Field(default=None, ge=0)
    """How long to wait for a version that is not complete; None: as long as ``timeout_s``."""
    digest: ManifestDigest | None = None
    """What the version's manifest (api.MANIFEST_FILE) must hash to; None: whatever it does."""


class PauseRequest(TimedCommand):
    """Close the gate and pause the engine."""

    PATH = paths.PAUSE_PATH
    VERB = Verb.PAUSE

    mode: PauseMode = PauseMode.KEEP
    kv_cache: KVCache = KVCache.RESET
    timeout_s: float = Field(default=60, gt=0)
    ttl_s: TimeToLive = DEFAULT_TTL_S
    """How long the change may stand still without a sign of its driver: an accepted command
    or a heartbeat (api.EPOCH_HEADER). Then the sidecar ends it: what was not reloaded
    runs on, what is proved opens, anything else ends the engine."""


class FlushRequest(TimedCommand):
    """Reset the KV and prefix cache of a paused engine."""

    PATH = paths.FLUSH_PATH
    VERB = Verb.FLUSH


class ReloadRequest(TimedCommand):
    """Load the prepared version into the paused engine, in place."""

    PATH = paths.RELOAD_PATH
    VERB = Verb.RELOAD

    timeout_s: float = Field(default=600, gt=0)


class VerifyRequest(TimedCommand):
    """Let the engine run behind the closed gate and prove what it holds."""

    PATH = paths.VERIFY_PATH
    VERB = Verb.VERIFY

    expected: Proof | None = None
    """What another worker of the same template showed of this version; None for the first."""
    timeout_s: float = Field(default=60, gt=0)


class ResumeRequest(TimedCommand):
    """Open the gate over a proved version."""

    PATH = paths.RESUME_PATH
    VERB = Verb.RESUME


class UpdateRequest(Command):
    """The whole sequence: pause, flush, reload, verify, resume; or the first part of it.

    A worker that stands further than ``through`` on its way to the version is left there.
    """

    PATH = paths.UPDATE_WEIGHTS_PATH
    VERB = Verb.RELOAD

    through: Literal[Verb.PAUSE, Verb.VERIFY, Verb.RESUME] = Verb.RESUME
    """The last step to take: Pause ends Paused and flushed, Verify ends Proved, the gate closed."""
    mode: PauseMode = PauseMode.KEEP
    kv_cache: KVCache = KVCache.RESET
    expected: Proof | None = None
    timeouts: Timeouts = Timeouts()
    ttl_s: TimeToLive = DEFAULT_TTL_S
    """As of a pause."""

    @property
    def limit_s(self) -> float:
        """How long all steps together may take, in seconds."""
        one = self.timeouts
        return one.pause_s + one.flush_s + one.reload_s + one.verify_s + one.resume_s


WEIGHTS_COMMANDS: tuple[type[Command], ...] = (
    PrepareRequest,
    PauseRequest,
    FlushRequest,
    ReloadRequest,
    VerifyRequest,
    ResumeRequest,
    UpdateRequest,
)
"""Those about the model's own weights; lora.py has the others."""


class Running(ContractReply):
    """The command that is being carried out."""

    verb: Verb
    """The step it is in."""
    operation: str
    version: str


class Progress(ContractReply):
    """How far a prepare has come."""

    version: str
    bytes_done: int = 0
    """Bytes of the checkpoint that were read, checked and, with a cache, staged."""
    bytes_total: int = 0
    """0 while the checkpoint is not complete or not checked yet."""
    waiting_for: str | None = None
    """What is not there yet; None once the version is complete."""


class Timings(ContractReply):
    """How long each step of one change took, in seconds."""

    prepare_s: float = 0
    pause_s: float = 0
    flush_s: float = 0
    reload_s: float = 0
    verify_s: float = 0
    resume_s: float = 0
    window_s: float = 0
    """From gate closed to gate open."""


class Change(ContractReply):
    """The last change of weights that ended well."""

    operation: str
    version: str
    finished_at: float
    """Seconds since the epoch, by the worker's clock."""
    timings: Timings


class Exits(ContractReply):
    """How often the engine's process ended while it loaded one version, or was to prove it.

    That says less of the version than a refusal does: processes die for reasons of their own.
    """

    version: str
    operation: str
    count: int
    """Of this version under this operation, since the pod began."""


class WorkerReport(ContractReply):
    """All that a worker says of itself; the answer to every verb and to GET state."""

    contract: int = CONTRACT_VERSION
    pod_uid: str | None = None
    """The UID of the worker's pod, if its sidecar knows it: an address may be another pod's."""
    session: str
    """Changes with every start of the sidecar."""
    boot: str | None = None
    """Changes with every start of the engine; None while it does not answer."""
    stage: Stage
    proved: str | None = None
    """The version that the engine's weights were proved to be; None when unknown."""
    proof: Proof | None = None
    """What was shown of ``proved``: other workers of the version compare with it."""
    installed: str | None = None
    """The version that was loaded last, proved or not."""
    prepared: str | None = None
    """The version that was checked and can be reloaded at once."""
    prepared_bytes: int | None = None
    """Bytes of its tensors; None while no version is prepared."""
    progress: Progress | None = None
    """Set while a prepare is under way."""
    staged: list[str] = Field(default_factory=list)
    """Versions in the worker's own cache, newest first."""
    running: Running | None = None
    in_flight: int = 0
    """Requests inside the engine or waiting at its gate."""
    paused_s: float | None = None
    """How long the gate has been closed for a change, in seconds; None while it is not."""
    expires_s: float | None = None
    """How long the sidecar still waits for a sign of the driver, in seconds, before it ends
    the change by itself; None while it is in none, or carries out a command."""
    operation: str | None = None
    """Of the change that it is in, if a driver with an epoch leads that; else None."""
    flushed: str | None = None
    """The operation whose flush emptied the caches last; None while no gate is closed for it."""
    epoch: int | None = None
    """The highest that this worker has seen; None if none."""
    refusal: Problem | None = None
    """Why the last prepare was refused; None after one that succeeded."""
    failure: Problem | None = None
    """Why the last change failed; None after one that succeeded or a new boot."""
    exits: Exits | None = None
    """Of the last load, if the engine ended in it; None after a load that ended otherwise."""
    last_change: Change | None = None
    adapters: list[AdapterReport] = Field(default_factory=list)
    rejected_trainer: RejectedTrainer | None = None
    """The last trainer's call that was rejected while the fleet is asked for a version."""
    self_test: SelfTest | None = None
    """What its engine showed of its own reload; None before the first test, or without one."""


class ReadBack(ContractReply):
    """What stands in one rank's memory, as far as it can be read."""

    digest: str
    """Over names, dtypes, shapes and bytes of parameters, persistent buffers and packed weights."""
    nbytes: int
    """How much memory that covers."""
    whole: int = 0
    """Bytes that the model was made with on this rank, packed or not; 0 when unknown."""
    unseen: int = 0
    """How many of these cannot be read, because a kernel keeps them where nothing else looks."""
    changed: bool | None = None
    """Whether it is other than what stood there before the load; None when nobody knows."""
    fed: int = 0
    """Bytes of the tensors that a parameter of the same name, dtype and shape stands for."""
    as_fed: int = 0
    """How many of these stand in memory exactly as the tensor came."""
    kept: tuple[str, ...] = ()
    """Some parameters that did not change though their tensors did."""

    @property
    def share(self) -> float | None:
        """How much of the model was read, from 0 to 1; None when unknown."""
        return 1 - self.unseen / self.whole if self.whole else None


class Consumed(ContractReply):
    """What one rank's own load, when the engine booted, made of the tensors that it was given."""

    names: str
    """Packed (names.packed): those that it read. It ignored the others."""
    tied: bool = False
    """Whether the head is the embeddings: one parameter, or no head at all."""
    renames: Renames | None = None
    """By which names that differ may be of one parameter; None where that is unknown."""
    experts: Experts | None = None
    """Which experts may be fused or not; None where the engine takes one form only."""
    ranks: int = 1
    """How many ranks the model is spread over, in all engines."""


class Installed(ContractReply):
    """What one rank of the engine consumed during a reload, and what it holds now."""

    tensors: int
    nbytes: int
    digest: str
    """Over names, shapes, dtypes and bytes of all tensors, in name order."""
    previous: str | None = None
    """The digest of the reload before, in the same boot, if memory must differ when it does."""
    parameters: ReadBack | None = None
    """None where the memory cannot be read."""
