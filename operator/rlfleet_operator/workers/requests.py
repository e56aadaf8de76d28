"""The requests to a sidecar: their bodies, fences and sequence numbers. Pure.

A number must stand for one command that is sent once. After a lost answer the driver gives the
command up and sends the same again under a new number.
"""

from dataclasses import dataclass
from typing import NamedTuple

from rlfleet_contract.worker.commands import Command
from rlfleet_contract.worker.fence import MAX_EPOCH, Fence
from rlfleet_operator.core.model.world import Fleet
from rlfleet_operator.errors import NotLeading

HIGHEST_EPOCH = MAX_EPOCH // 2
"""No driver reaches this epoch. A higher one is forged, and no driver may exceed it."""


class DrivenFleet(NamedTuple):
    """A fleet that this process drives."""

    fleet: str
    """Its UID."""
    epoch: int


def epoch_for(fleet: Fleet, taken: DrivenFleet | None, reported: int) -> int:
    """Return the epoch of a driver's next status.

    ``reported`` is the highest epoch above this driver's that a worker reported. A driver writes
    its epoch to status before it sends it to a worker. So an epoch that status lacks has no
    driver (status was restored from a backup, or a caller forged it), or this write conflicts.

    Raises NotLeading if status has a later driver's epoch.
    """
    seen = fleet.status.epoch if fleet.status.epoch <= HIGHEST_EPOCH else 0
    if taken is None or taken.fleet != fleet.uid:
        return max(seen, reported) + 1
    if seen > taken.epoch:
        raise NotLeading(f"status has epoch {seen} of a later driver (this driver: {taken.epoch})")
    return reported + 1 if reported > taken.epoch else taken.epoch


@dataclass(slots=True)
class CommandNumbers:
    """Numbers the commands of one driver to all workers."""

    last: int = 0

    def fenced(self, body: Command, taken: DrivenFleet, pod: str) -> Command:
        """Return the command with its fence."""
        self.last += 1
        fence = Fence(fleet=taken.fleet, pod=pod, epoch=taken.epoch, sequence=self.last)
        return body.model_copy(update={"fence": fence})
