"""Commands as they go to a sidecar: what is asked, by whom, and under which number. Pure.

It must stay true that a number stands for one command, sent once: one whose answer was lost
is over, and whoever asks for the same again takes a new number.
"""

from dataclasses import dataclass
from typing import NamedTuple

from rlfleet_contract.worker.commands import Command
from rlfleet_contract.worker.fence import MAX_EPOCH, Fence
from rlfleet_operator.core.model.world import Fleet
from rlfleet_operator.errors import NotLeading

HIGHEST_EPOCH = MAX_EPOCH // 2
"""No driver counts so far: a number above it was made up, and is nobody's to outdo."""


class Taken(NamedTuple):
    """A fleet that is driven from here."""

    fleet: str
    """Its UID."""
    epoch: int


def epoch_for(fleet: Fleet, taken: Taken | None, heard: int) -> int:
    """Return the epoch that a driver's next status carries.

    ``heard`` is the highest above ours that its workers have told of. If status does not know
    it, it is nobody's: status was restored from a backup, or a stranger gave a number. Whoever
    drives had written it there before a worker heard it, and then our own write conflicts.

    Raises NotLeading when a later driver is seen.
    """
    seen = fleet.status.epoch if fleet.status.epoch <= HIGHEST_EPOCH else 0
    if taken is None or taken.fleet != fleet.uid:
        return max(seen, heard) + 1
    if seen > taken.epoch:
        raise NotLeading(f"epoch {seen} is another's: ours is {taken.epoch}")
    return heard + 1 if heard > taken.epoch else taken.epoch


@dataclass(slots=True)
class Numbers:
    """Counts the commands of one driver, to whichever worker they go."""

    last: int = 0

    def fenced(self, body: Command, taken: Taken, pod: str) -> Command:
        """Return the command with its fence."""
        self.last += 1
        fence = Fence(fleet=taken.fleet, pod=pod, epoch=taken.epoch, sequence=self.last)
        return body.model_copy(update={"fence": fence})
