"""Whose commands count, and which answer a repeated one gets. Pure.

Commands come at least once, late, and from drivers that are none any more. It must stay
true that nothing of a lower epoch than the highest seen has an effect, and that one
(epoch, sequence) has one effect and one answer: what is not newer than the newest and
was not answered here is refused, however old it is.
"""

from typing import Self

from pydantic import BaseModel, ConfigDict

from rlfleet_contract.worker.fence import Fence, Place
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.errors import SidecarError

KEPT = 16
"""A driver has one change and one prepare under way; its later repeats come soon."""
_IN_CHANGE = frozenset({Stage.PAUSED, Stage.LOADING, Stage.LOADED, Stage.PROVED})


class StoredAnswer(BaseModel):
    """What a command was answered."""

    model_config = ConfigDict(frozen=True)

    status: int
    """HTTP status."""
    body: str


class Order(BaseModel):
    """A command that was heard; without an answer while it is being carried out."""

    model_config = ConfigDict(frozen=True)

    sequence: int
    digest: str
    """Of the command's body: a number that stands for two commands is somebody's error."""
    answer: StoredAnswer | None = None


class SeenCommands(BaseModel):
    """The highest epoch that was seen, and the last commands of it."""

    model_config = ConfigDict(frozen=True)

    epoch: int | None = None
    sequence: int = -1
    """The highest of this epoch."""
    over: int = -1
    """Of this epoch: up to here its driver waits for no command any more."""
    orders: tuple[Order, ...] = ()

    def at(self, epoch: int) -> Self:
        """Hear of an epoch; a higher one ends all that was before."""
        if self.epoch is not None and epoch <= self.epoch:
            return self
        return type(self)(epoch=epoch)

    def ending(self, place: Place) -> Self:
        """Hear that commands are over up to a place: those that have not come are too late."""
        heard = self.at(place.epoch)
        if place.epoch != heard.epoch or place.sequence <= heard.over:
            return heard
        return heard.model_copy(update={"over": place.sequence})

    def hearing(self, fence: Fence, digest: str) -> Self:
        """Note a command, before anything is done for it."""
        heard = self.at(fence.epoch)
        orders = [order for order in heard.orders if order.sequence != fence.sequence]
        orders.append(Order(sequence=fence.sequence, digest=digest))
        return type(self)(
            epoch=heard.epoch,
            sequence=max(heard.sequence, fence.sequence),
            over=heard.over,
            orders=tuple(orders[-KEPT:]),
        )

    def order_of(self, fence: Fence) -> Order | None:
        """Return the command that was heard under a fence's number, if it is still kept."""
        return next((order for order in self.orders if order.sequence == fence.sequence), None)

    def answering(self, fence: Fence, answer: StoredAnswer) -> Self:
        """Note a command's answer; one of an epoch that is over is needed by nobody."""
        if fence.epoch != self.epoch:
            return self
        orders = tuple(
            order.model_copy(update={"answer": answer})
            if order.sequence == fence.sequence
            else order
            for order in self.orders
        )
        return self.model_copy(update={"orders": orders})


def judge_fence(
    heard: SeenCommands, fence: Fence, digest: str, *, is_under_way: bool = False
) -> StoredAnswer | None:
    """Return the answer that this command had, or None if it is to be carried out or joined.

    One that was heard and never answered was cut off by this sidecar's death. It is carried
    out if nothing newer was heard: the state machine goes on from where it stands. One that its
    driver has given up is carried out no more: that has acted on how this worker stood then.

    Raises StaleEpoch for whatever is too old, and InvalidRequest for a number twice given.
    """
    if heard.epoch is None or fence.epoch > heard.epoch:
        return None
    if fence.epoch < heard.epoch:
        raise _stale(
            heard,
            f"epoch {fence.epoch} is over: {heard.epoch} was seen; whoever sent this leads no more",
        )
    known = heard.order_of(fence)
    if known is not None and known.digest != digest:
        raise SidecarError(
            Code.INVALID_REQUEST,
            f"fence: {fence.sequence} of epoch {fence.epoch} was another command",
        )
    if known is not None and known.answer is not None:
        return known.answer
    if is_under_way or _is_due(heard, fence, known):
        return None
    raise _stale(
        heard,
        f"command {fence.sequence} of epoch {fence.epoch} came late: {heard.sequence} was heard"
        f" already, and all are over up to {heard.over}",
    )


def _is_due(heard: SeenCommands, fence: Fence, known: Order | None) -> bool:
    """Decide whether a command without an answer is the newest and its driver waits for it."""
    is_new = fence.sequence > heard.sequence
    is_cut_off = known is not None and fence.sequence == heard.sequence
    return (is_new or is_cut_off) and fence.sequence > heard.over


def demand_addressee(fence: Fence, fleet: str, pod: str) -> None:
    """See that this worker is meant; what it does not know of itself is not compared."""
    for word, meant, here in (("fleet", fence.fleet, fleet), ("pod", fence.pod, pod)):
        if here and meant != here:
            raise SidecarError(
                Code.WRONG_WORKER, f"this is meant for {word} {meant}; here is {word} {here}"
            )


def demand_unled(stage: Stage, operation: str, led_by: tuple[str, int | None] | None) -> None:
    """See that a command without a fence does not cross a change that an operator leads."""
    if led_by is None or stage not in _IN_CHANGE:
        return
    leading, epoch = led_by
    if epoch is not None and leading != operation:
        raise SidecarError(
            Code.BUSY,
            f"operation {leading} of epoch {epoch} changes this worker ({stage}); send it when"
            " that has ended, or with its fence",
        )


def _stale(heard: SeenCommands, message: str) -> SidecarError:
    error = SidecarError(Code.STALE_EPOCH, message)
    error.epoch = heard.epoch
    return error
