"""Who commands a worker, as its sidecar checks it."""

import re
from typing import Annotated, NamedTuple, Self

from pydantic import Field, StringConstraints

from rlfleet_contract.schema import ContractRequest

MAX_EPOCH = 2**53 - 1
"""Any JSON reader keeps it; a worker that had heard of more could be led by nobody."""
_PLACE = re.compile(r"([0-9]{1,16})\.([0-9]{1,16})")


class Place(NamedTuple):
    """Where a command stands among all that were ever given to one worker."""

    epoch: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what ``str`` makes. Raises ValueError."""
        found = _PLACE.fullmatch(text)
        place = cls(*map(int, found.groups())) if found else None
        if place is None or max(place) > MAX_EPOCH:
            raise ValueError("must be EPOCH.SEQUENCE, two whole numbers")
        return place


class Fence(ContractRequest):
    """Who sends a command, and to whom: a sidecar carries out nothing of an older driver.

    A lower ``epoch`` than the highest that was seen gets 409 StaleEpoch with that one; a
    repeat of (epoch, sequence) gets the answer that the first got.
    """

    fleet: Annotated[str, StringConstraints(max_length=64)]
    """UID of the fleet, so that a namesake's driver is refused."""
    pod: Annotated[str, StringConstraints(max_length=64)]
    """UID of the pod that is meant: its successor at the same address is another worker."""
    epoch: int = Field(ge=0, le=MAX_EPOCH)
    """Raised by compare-and-swap in the fleet's status whenever a driver takes over."""
    sequence: int = Field(ge=0)
    """Counts the commands of one epoch to one worker; a repeat carries the same number."""

    @property
    def place(self) -> Place:
        """Where the command stands."""
        return Place(self.epoch, self.sequence)
