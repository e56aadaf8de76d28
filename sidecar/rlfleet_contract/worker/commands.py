"""Commands to a worker: one class each, with path, verb and time limit."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from rlfleet_contract import paths
from rlfleet_contract.paths import DEFAULT_TTL_S, DIGEST_PATTERN, MAX_TTL_S, VERSION_PATTERN
from rlfleet_contract.schema import ContractRequest
from rlfleet_contract.worker.fence import Fence
from rlfleet_contract.worker.proof import Proof
from rlfleet_contract.worker.supply import Supply

Version = Annotated[str, StringConstraints(pattern=VERSION_PATTERN)]
Operation = Annotated[str, StringConstraints(min_length=1, max_length=128)]
TimeToLive = Annotated[float, Field(gt=0, le=MAX_TTL_S)]
ManifestDigest = Annotated[str, StringConstraints(pattern=DIGEST_PATTERN)]


class PauseMode(StrEnum):
    """How a pause treats requests in flight (vLLM's /pause modes)."""

    KEEP = "Keep"
    """They freeze, and continue after the change with the new weights."""
    WAIT = "Wait"
    """The pause waits until they have ended, with the old weights."""
    ABORT = "Abort"
    """They end at once, marked as aborted."""


class KVCache(StrEnum):
    """How a change treats the KV and prefix cache."""

    RESET = "Reset"
    PRESERVE = "Preserve"


class Verb(StrEnum):
    """The kind of a command or of a step of it."""

    PREPARE = "Prepare"
    PAUSE = "Pause"
    FLUSH = "Flush"
    RELOAD = "Reload"
    VERIFY = "Verify"
    RESUME = "Resume"
    ADAPT = "Adapt"
    """Load, replace or unload an adapter; not a step of a change of weights."""


BESIDE = frozenset({Verb.PREPARE, Verb.ADAPT})
"""What a worker does while it serves."""


class Timeouts(ContractRequest):
    """How long each step may take, in seconds."""

    pause_s: float = Field(default=60, gt=0)
    flush_s: float = Field(default=30, gt=0)
    reload_s: float = Field(default=600, gt=0)
    verify_s: float = Field(default=60, gt=0)
    resume_s: float = Field(default=30, gt=0)


class Command(ContractRequest):
    """The fields of every command. A subclass adds path, verb and time limit."""

    PATH: ClassVar[str]
    METHOD: ClassVar[str] = "POST"
    VERB: ClassVar[Verb]
    """Its step in the report while it runs."""

    operation: Operation
    """The rollout's id. A repeat under the same id has one effect and one answer."""
    version: Version
    fence: Fence | None = None
    """None from a trainer or a person."""

    @property
    def limit_s(self) -> float:
        """How long the worker may take to answer, in seconds."""
        raise NotImplementedError


class TimedCommand(Command):
    """A command with one time limit for all of it."""

    timeout_s: float = Field(default=30, gt=0)

    @property
    def limit_s(self) -> float:
        """How long the worker may take to answer, in seconds."""
        return self.timeout_s


class PrepareRequest(TimedCommand):
    """Wait until the version is complete, check it, copy it into the cache; the engine serves.

    A prepare of another version replaces it, and a change of weights does not wait for it.
    """

    PATH = paths.PREPARE_PATH
    VERB = Verb.PREPARE

    timeout_s: float = Field(default=120, gt=0)
    """How long wait, check and copy may take together."""
    wait_s: float | None = Field(default=None, ge=0)
    """How long to wait until the version is complete; None: ``timeout_s``."""
    digest: ManifestDigest | None = None
    """The hash that the version's manifest (paths.MANIFEST_FILE) must have; None: any."""
    supply: Supply | None = None
    """Which workers send it pieces of the version; None: it reads all itself and shares nothing.
    Sidecars of earlier releases reject it."""


class PauseRequest(TimedCommand):
    """Close the gate and pause the engine."""

    PATH = paths.PAUSE_PATH
    VERB = Verb.PAUSE

    mode: PauseMode = PauseMode.KEEP
    kv_cache: KVCache = KVCache.RESET
    timeout_s: float = Field(default=60, gt=0)
    ttl_s: TimeToLive = DEFAULT_TTL_S
    """How long the change waits for an accepted command or a heartbeat (paths.EPOCH_HEADER) of
    its driver. Then the sidecar ends it: Paused resumes, Proved opens, anything else ends the
    engine."""


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
    """Run the engine behind the closed gate and prove the version that it computes with."""

    PATH = paths.VERIFY_PATH
    VERB = Verb.VERIFY

    expected: Proof | None = None
    """The proof of another worker of the same template; None for the first."""
    timeout_s: float = Field(default=60, gt=0)


class ResumeRequest(TimedCommand):
    """Open the gate over a proved version."""

    PATH = paths.RESUME_PATH
    VERB = Verb.RESUME


class UpdateRequest(Command):
    """The whole sequence: pause, flush, reload, verify, resume; or a first part of it.

    A worker that is past ``through`` on its way to the version stays where it is.
    """

    PATH = paths.UPDATE_WEIGHTS_PATH
    VERB = Verb.RELOAD

    through: Literal[Verb.PAUSE, Verb.VERIFY, Verb.RESUME] = Verb.RESUME
    """The last step. Pause ends in Paused with empty caches, Verify in Proved; both with a closed
    gate."""
    mode: PauseMode = PauseMode.KEEP
    kv_cache: KVCache = KVCache.RESET
    expected: Proof | None = None
    timeouts: Timeouts = Timeouts()
    ttl_s: TimeToLive = DEFAULT_TTL_S
    """See PauseRequest."""

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
"""Commands for the model's weights; lora.py has those for adapters."""
