"""What keeps a fleet's objects from being as they shall be, and whether status tells it.

It must stay true that what may pass by itself is not told before it has lasted: Stalled is
taken for a failure, and a GitOps tool gives up at once. A defect of ours is told: without
its fleet's status nobody would look for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rlfleet_operator.errors import NotLeading, OperatorError, Retryable

_LASTING_S = 60.0
"""How long a disturbance may last before status tells it."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why something of a fleet could not be written the last time."""

    message: str
    since: float
    may_pass: bool
    """Whether the same may succeed in a moment, without anybody's doing."""

    def told(self, now: float) -> str | None:
        """Return what status shall say of it; None while it may be over in a moment."""
        return None if self.may_pass and now - self.since < _LASTING_S else self.message


def after(errors: Sequence[BaseException], before: Trouble | None, now: float) -> Trouble | None:
    """Return what is wrong once a try has ended with these errors; None when it had none."""
    if not errors:
        return None
    lasting = [error for error in errors if not may_pass(error)]
    if lasting:
        return Trouble(said_of(lasting[0]), now, may_pass=False)
    if before is not None and not before.may_pass:
        # A disturbance tells nothing about what was refused before it.
        return before
    return Trouble(said_of(errors[0]), now if before is None else before.since, may_pass=True)


def may_pass(error: BaseException) -> bool:
    """Tell whether the same may succeed in a moment, without anybody's doing."""
    return isinstance(error, Retryable | NotLeading)


def said_of(error: BaseException) -> str:
    """Return what status says of an error: its own words, or that it is a defect of ours."""
    if isinstance(error, OperatorError):
        return str(error)
    return f"internal error: {type(error).__name__}: {error}; see the operator's log"
