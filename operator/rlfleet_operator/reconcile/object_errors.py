"""Which errors of writing a fleet's objects appear in status, and when.

An error that may pass must last before it appears, because GitOps tools take Stalled for a
failure. A defect of the operator appears at once, because only status points users to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rlfleet_operator.errors import NotLeading, OperatorError, Retryable

LASTING_S = 60.0
"""How long an error that may pass must last before it appears in status."""


@dataclass(frozen=True, slots=True)
class ObjectFailure:
    """Why the last write of an object failed."""

    message: str
    since: float
    may_pass: bool
    """Whether a retry may succeed without a change by a user."""

    def for_status(self, now: float) -> str | None:
        """Return the message for status; None while the error may still pass."""
        return None if self.may_pass and now - self.since < LASTING_S else self.message


def after(
    errors: Sequence[BaseException], before: ObjectFailure | None, now: float
) -> ObjectFailure | None:
    """Return the trouble after an attempt that ended with these errors; None without one."""
    if not errors:
        return None
    lasting = [error for error in errors if not may_pass(error)]
    if lasting:
        return ObjectFailure(message_of(lasting[0]), now, may_pass=False)
    if before is not None and not before.may_pass:
        # A passing error does not show that the earlier rejection is resolved.
        return before
    return ObjectFailure(
        message_of(errors[0]), now if before is None else before.since, may_pass=True
    )


def may_pass(error: BaseException) -> bool:
    """Return whether a retry may succeed without a change by a user."""
    return isinstance(error, Retryable | NotLeading)


def message_of(error: BaseException) -> str:
    """Return the message for status: the error's own, or that the operator has a defect."""
    if isinstance(error, OperatorError):
        return str(error)
    return f"internal error: {type(error).__name__}: {error}; see the operator's log"
