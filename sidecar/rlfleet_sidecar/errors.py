"""What can go wrong in the sidecar.

One class reaches callers: its code says everything a caller may decide on. The two
about the engine stay inside until the step in which they happened gives them a code.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from rlfleet_contract.worker.commands import Command
from rlfleet_contract.worker.problems import Code, Problem


class SidecarError(Exception):
    """A command that was refused or failed; becomes a Problem at the edge."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.operation: str | None = None
        """The command that it happened to; known to whoever carries commands out."""
        self.version: str | None = None
        self.epoch: int | None = None
        """With StaleEpoch: the highest that was seen."""

    def problem(self) -> Problem:
        """Tell it in the contract's words."""
        problem = Problem.of(
            self.code, self.message, version=self.version, operation=self.operation
        )
        return problem.model_copy(update={"epoch": self.epoch})


@contextmanager
def about(command: Command) -> Iterator[None]:
    """Have an error say which command it happened to."""
    try:
        yield
    except SidecarError as error:
        error.operation, error.version = command.operation, command.version
        raise


def log_fields(problem: Problem) -> dict[str, object]:
    """Return the fields of a log line about a problem; its message is the line's ``error``."""
    return {"error": problem.message, **problem.model_dump(exclude={"message"})}


class EngineError(Exception):
    """The engine answered, and not with what was asked for."""


class EngineFailedError(EngineError):
    """The engine answered 5xx: it failed by itself, which says little of what it was asked."""


class EngineLostError(Exception):
    """The engine did not answer: it is gone, or going."""


class EngineRestartedError(Exception):
    """The engine is another start of it than the one that the command was meant for."""
