"""Everything that can go wrong between operator and sidecar, by code.

Only the code determines the HTTP status and whether a retry can succeed.
"""

from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict


class ErrorCode(StrEnum):
    """A table of codes: each column that a row omits equals the one before it."""

    retryable: bool
    """Whether the same request can succeed later, without a change by its sender."""
    status: int
    """HTTP status of the reply at the routes of /v1/rl."""
    trainer_status: int
    """At trainers' own routes: their clients retry every 5xx, and nothing else."""
    adapter_status: int
    """At /load_lora_adapter: prime-rl waits for files by retrying 404 and 500 there."""

    def __new__(
        cls,
        value: str,
        retryable: bool,  # noqa: FBT001 - a column of the table
        status: int,
        trainer_status: int = 0,
        adapter_status: int = 0,
    ) -> Self:
        """Make a row."""
        row = str.__new__(cls, value)
        row._value_, row.retryable, row.status = value, retryable, status
        row.trainer_status = trainer_status or status
        row.adapter_status = adapter_status or row.trainer_status
        return row


RETRY, FINAL = True, False


class Code(ErrorCode):
    """What went wrong. The value appears in bodies, status and Events."""

    UNAUTHORIZED = "Unauthorized", FINAL, 401
    INVALID_REQUEST = "InvalidRequest", FINAL, 400
    STALE_EPOCH = "StaleEpoch", FINAL, 409
    WRONG_WORKER = "WrongWorker", FINAL, 409
    TOO_MANY_REQUESTS = "TooManyRequests", RETRY, 429
    BUSY = "Busy", RETRY, 409, 503, 500
    WRONG_STAGE = "WrongStage", FINAL, 409
    NOT_PREPARED = "NotPrepared", RETRY, 409, 503, 500
    VERSION_NOT_FOUND = "VersionNotFound", RETRY, 404
    CHECKPOINT_INCOMPLETE = "CheckpointIncomplete", RETRY, 425, 425, 404
    CHECKPOINT_INVALID = "CheckpointInvalid", FINAL, 422
    CHECKPOINT_UNREADABLE = "CheckpointUnreadable", RETRY, 422
    PATH_REFUSED = "PathRefused", FINAL, 422
    DIGEST_MISMATCH = "DigestMismatch", FINAL, 422
    CACHE_FULL = "CacheFull", RETRY, 507, 422
    ENGINE_UNREACHABLE = "EngineUnreachable", RETRY, 503, 503, 500
    ENGINE_RESTARTED = "EngineRestarted", RETRY, 409, 503, 500
    ENGINE_IN_DOUBT = "EngineInDoubt", FINAL, 409
    ENGINE_UNFAITHFUL = "EngineUnfaithful", FINAL, 422
    ENGINE_UNTESTED = "EngineUntested", FINAL, 422
    PAUSE_FAILED = "PauseFailed", RETRY, 502, 502, 500
    FLUSH_FAILED = "FlushFailed", RETRY, 502, 502, 500
    TRANSFER_FAILED = "TransferFailed", FINAL, 502, 422
    RELOAD_FAILED = "ReloadFailed", FINAL, 502, 422
    PROOF_FAILED = "ProofFailed", FINAL, 502, 422
    RESUME_FAILED = "ResumeFailed", RETRY, 502, 502, 500
    ADAPTER_FAILED = "AdapterFailed", FINAL, 502, 422
    ADAPTERS_OWNED = "AdaptersOwned", FINAL, 409
    INTERNAL = "Internal", RETRY, 500


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
            retryable=code.retryable,
            version=version,
            operation=operation,
        )
