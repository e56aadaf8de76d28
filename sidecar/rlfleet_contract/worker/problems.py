"""Everything that can go wrong between operator and sidecar, by code.

Only the code determines the HTTP status and whether a retry can succeed.
"""

from enum import StrEnum
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict


class Code(StrEnum):
    """What went wrong. The value appears in bodies, status and Events."""

    UNAUTHORIZED = "Unauthorized"
    INVALID_REQUEST = "InvalidRequest"
    STALE_EPOCH = "StaleEpoch"
    WRONG_WORKER = "WrongWorker"
    TOO_MANY_REQUESTS = "TooManyRequests"
    BUSY = "Busy"
    WRONG_STAGE = "WrongStage"
    NOT_PREPARED = "NotPrepared"
    VERSION_NOT_FOUND = "VersionNotFound"
    CHECKPOINT_INCOMPLETE = "CheckpointIncomplete"
    CHECKPOINT_INVALID = "CheckpointInvalid"
    CHECKPOINT_UNREADABLE = "CheckpointUnreadable"
    PATH_REFUSED = "PathRefused"
    DIGEST_MISMATCH = "DigestMismatch"
    CACHE_FULL = "CacheFull"
    ENGINE_UNREACHABLE = "EngineUnreachable"
    ENGINE_RESTARTED = "EngineRestarted"
    ENGINE_IN_DOUBT = "EngineInDoubt"
    ENGINE_UNFAITHFUL = "EngineUnfaithful"
    ENGINE_UNTESTED = "EngineUntested"
    PAUSE_FAILED = "PauseFailed"
    FLUSH_FAILED = "FlushFailed"
    TRANSFER_FAILED = "TransferFailed"
    RELOAD_FAILED = "ReloadFailed"
    PROOF_FAILED = "ProofFailed"
    RESUME_FAILED = "ResumeFailed"
    ADAPTER_FAILED = "AdapterFailed"
    ADAPTERS_OWNED = "AdaptersOwned"
    INTERNAL = "Internal"


class Meaning(NamedTuple):
    """What a code means for its receiver."""

    status: int
    """HTTP status of the reply."""
    retryable: bool
    """Whether the same request can succeed later, without a change by its sender."""


MEANINGS: dict[Code, Meaning] = {
    Code.UNAUTHORIZED: Meaning(401, retryable=False),
    Code.INVALID_REQUEST: Meaning(400, retryable=False),
    Code.STALE_EPOCH: Meaning(409, retryable=False),
    Code.WRONG_WORKER: Meaning(409, retryable=False),
    Code.TOO_MANY_REQUESTS: Meaning(429, retryable=True),
    Code.BUSY: Meaning(409, retryable=True),
    Code.WRONG_STAGE: Meaning(409, retryable=False),
    Code.NOT_PREPARED: Meaning(409, retryable=True),
    Code.VERSION_NOT_FOUND: Meaning(404, retryable=True),
    Code.CHECKPOINT_INCOMPLETE: Meaning(425, retryable=True),
    Code.CHECKPOINT_INVALID: Meaning(422, retryable=False),
    Code.CHECKPOINT_UNREADABLE: Meaning(422, retryable=True),
    Code.PATH_REFUSED: Meaning(422, retryable=False),
    Code.DIGEST_MISMATCH: Meaning(422, retryable=False),
    Code.CACHE_FULL: Meaning(507, retryable=True),
    Code.ENGINE_UNREACHABLE: Meaning(503, retryable=True),
    Code.ENGINE_RESTARTED: Meaning(409, retryable=True),
    Code.ENGINE_IN_DOUBT: Meaning(409, retryable=False),
    Code.ENGINE_UNFAITHFUL: Meaning(422, retryable=False),
    Code.ENGINE_UNTESTED: Meaning(422, retryable=False),
    Code.PAUSE_FAILED: Meaning(502, retryable=True),
    Code.FLUSH_FAILED: Meaning(502, retryable=True),
    Code.TRANSFER_FAILED: Meaning(502, retryable=False),
    Code.RELOAD_FAILED: Meaning(502, retryable=False),
    Code.PROOF_FAILED: Meaning(502, retryable=False),
    Code.RESUME_FAILED: Meaning(502, retryable=True),
    Code.ADAPTER_FAILED: Meaning(502, retryable=False),
    Code.ADAPTERS_OWNED: Meaning(409, retryable=False),
    Code.INTERNAL: Meaning(500, retryable=True),
}

CHECKPOINT_CODES = frozenset(
    {
        Code.VERSION_NOT_FOUND,
        Code.CHECKPOINT_INCOMPLETE,
        Code.CHECKPOINT_INVALID,
        Code.CHECKPOINT_UNREADABLE,
        Code.PATH_REFUSED,
        Code.DIGEST_MISMATCH,
        Code.CACHE_FULL,
    }
)
"""Rejections of a version before a pause, because of its files or their size."""


class Problem(BaseModel):
    """The body of every reply that is not 2xx, and a worker's last failure."""

    model_config = ConfigDict(frozen=True)

    code: Code
    message: str
    """What failed, the value and the expected value, then what to do."""
    retryable: bool
    version: str | None = None
    """The version that the failed command named."""
    operation: str | None = None
    """The operation (a rollout's id) that the failed command belonged to."""
    epoch: int | None = None
    """With StaleEpoch: the highest epoch that this worker has seen."""

    @classmethod
    def of(
        cls, code: Code, message: str, *, version: str | None = None, operation: str | None = None
    ) -> "Problem":
        """Return a problem with the ``retryable`` of its code."""
        return cls(
            code=code,
            message=message,
            retryable=MEANINGS[code].retryable,
            version=version,
            operation=operation,
        )
