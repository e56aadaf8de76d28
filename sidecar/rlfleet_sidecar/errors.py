"""The errors of the sidecar.

Callers receive SidecarError alone, and may decide by its code alone. Errors of the engine
stay inside, until the step in which they occurred turns them into one with its code.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from rlfleet_contract.worker.commands import Command
from rlfleet_contract.worker.problems import Code, Problem


class SidecarError(Exception):
    """A rejected or failed command; http/problems.py turns it into a reply."""

    def __init__(self, code: Code, message: str) -> None:
        # A name on a volume may be no UTF-8, which no reply and no record can hold.
        self.message = message.encode("utf-8", "backslashreplace").decode()
        super().__init__(self.message)
        self.code = code
        self.operation: str | None = None
        """Set by ``about``: the command that failed."""
        self.version: str | None = None
        self.epoch: int | None = None
        """With StaleEpoch: the highest epoch that the worker has seen."""

    def problem(self) -> Problem:
        """Return it as a model of the contract."""
        problem = Problem.of(
            self.code, self.message, version=self.version, operation=self.operation
        )
        return problem.model_copy(update={"epoch": self.epoch})


@contextmanager
def about(command: Command) -> Iterator[None]:
    """Add the command to errors raised inside."""
    try:
        yield
    except SidecarError as error:
        error.operation, error.version = command.operation, command.version
        raise


def internal(error: Exception) -> SidecarError:
    """Return the problem for a defect of the sidecar; its message may hold secrets, so no quote."""
    return SidecarError(
        Code.INTERNAL, f"internal error of the sidecar ({type(error).__name__}); see its log"
    )


def log_fields(problem: Problem) -> dict[str, object]:
    """Return the fields of a log line about a problem; its message is the line's ``error``."""
    return {"error": problem.message, **problem.model_dump(exclude={"message"})}


class EngineError(Exception):
    """The engine answered, but not as expected."""


class EngineFailedError(EngineError):
    """The engine answered 5xx, for which the request need not be the cause."""


class EngineLostError(Exception):
    """The engine does not answer: it has ended, or is about to."""


class EngineRestartedError(Exception):
    """The engine has another boot than the one that the command names."""
