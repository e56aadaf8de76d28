"""How a command ends other than well: a message and an exit status."""

from enum import IntEnum


class Exit(IntEnum):
    """The exit statuses; docs/how-to/kubectl.md lists them."""

    OK = 0
    FAILED = 1
    """The request failed, or the fleet is not in a state that it fits."""
    USAGE = 2
    """Wrong flags or arguments."""
    STALLED = 3
    """`wait`: the fleet is stalled, so that waiting does not help."""
    TIMED_OUT = 4
    """`wait`: the timeout passed."""
    SUPERSEDED = 5
    """`wait`: the spec requests another version."""


class PluginError(Exception):
    """A command failed; the message says what failed, then what to do."""

    def __init__(self, message: str, status: Exit = Exit.FAILED) -> None:
        super().__init__(message)
        self.status = status
