"""What identifies an operator's command, so that a sidecar can reject a stale one."""

import re
from typing import Annotated, NamedTuple, Self

from pydantic import Field, StringConstraints

from rlfleet_contract.schema import ContractRequest

MAX_EPOCH = 2**53 - 1
"""The largest integer that every JSON parser represents exactly."""
_PLACE = re.compile(r"([0-9]{1,16})\.([0-9]{1,16})")


class Place(NamedTuple):
    """The position of a command among all commands to one worker."""

    epoch: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse EPOCH.SEQUENCE. Raises ValueError."""
        found = _PLACE.fullmatch(text)
        place = cls(*map(int, found.groups())) if found else None
        if place is None or max(place) > MAX_EPOCH:
            raise ValueError(f"got {text[:40]!r}, expected EPOCH.SEQUENCE, two integers")
        return place


class Fence(ContractRequest):
    """Sender and recipient of a command.

    An ``epoch`` below the highest that the worker has seen gets 409 StaleEpoch with the latter;
    a repeat of (epoch, sequence) gets the first answer again.
    """

    fleet: Annotated[str, StringConstraints(max_length=64)]
    """UID of the fleet: commands of another fleet with the same name are rejected."""
    pod: Annotated[str, StringConstraints(max_length=64)]
    """UID of the recipient: a new pod at the same address is another worker."""
    epoch: int = Field(ge=0, le=MAX_EPOCH)
    """A new driver increments it by compare-and-swap in the fleet's status."""
    sequence: int = Field(ge=0)
    """Counts the commands of one epoch to one worker; a repeat has the same number."""

    @property
    def place(self) -> Place:
        """Epoch and sequence, for comparisons."""
        return Place(self.epoch, self.sequence)
