"""Commands to a worker: one class each, which knows its path, verb and limit."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from rlfleet_contract import paths
from rlfleet_contract.paths import DEFAULT_TTL_S, DIGEST_PATTERN, MAX_TTL_S, VERSION_PATTERN
from rlfleet_contract.schema import ContractRequest
from rlfleet_contract.worker.fence import Fence
from rlfleet_contract.worker.proof import Proof

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
    """Wait until the version is complete, check it, stage it; the engine serves on.

    A prepare of another version takes its place; a change of weights does not wait for it.
    """

    PATH = paths.PREPARE_PATH
    VERB = Verb.PREPARE

    timeout_s: float = Field(default=120, gt=0)
    """How long all of it may take."""
    wait_s: float | None = Field(default=None, ge=0)
    """How long to wait for a version that is not complete; None: as long as ``timeout_s``."""
    digest: ManifestDigest | None = None
    """What the version's manifest (paths.MANIFEST_FILE) must hash to; None: whatever it does."""


class PauseRequest(TimedCommand):
    """Close the gate and pause the engine."""

    PATH = paths.PAUSE_PATH
    VERB = Verb.PAUSE

    mode: PauseMode = PauseMode.KEEP
    kv_cache: KVCache = KVCache.RESET
    timeout_s: float = Field(default=60, gt=0)
    ttl_s: TimeToLive = DEFAULT_TTL_S
    """How long the change may stand still without a sign of its driver: an accepted command
    or a heartbeat (paths.EPOCH_HEADER). Then the sidecar ends it: what was not reloaded
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

    def steps(self, verbs: Sequence[Verb]) -> "tuple[ChangeCommand, ...]":
        """Return the single commands that these verbs of the sequence consist of."""
        about = {"operation": self.operation, "version": self.version}
        limits = self.timeouts
        steps: dict[Verb, ChangeCommand] = {
            Verb.PAUSE: PauseRequest(
                **about,
                mode=self.mode,
                kv_cache=self.kv_cache,
                timeout_s=limits.pause_s,
                ttl_s=self.ttl_s,
            ),
            Verb.FLUSH: FlushRequest(**about, timeout_s=limits.flush_s),
            Verb.RELOAD: ReloadRequest(**about, timeout_s=limits.reload_s),
            Verb.VERIFY: VerifyRequest(**about, expected=self.expected, timeout_s=limits.verify_s),
            Verb.RESUME: ResumeRequest(**about, timeout_s=limits.resume_s),
        }
        skipped = {Verb.FLUSH} if self.kv_cache is KVCache.PRESERVE else set()
        return tuple(steps[verb] for verb in verbs if verb not in skipped)


ChangeCommand = PauseRequest | FlushRequest | ReloadRequest | VerifyRequest | ResumeRequest
"""One step of a change, as the sidecar carries it out."""


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
