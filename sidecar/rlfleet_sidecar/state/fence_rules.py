"""Which commands are accepted, and what a repeat is answered. Pure.

Commands arrive once or more often, late, and even from former drivers. It must stay true that
no command of a lower epoch than the highest seen has an effect, and that each
(epoch, sequence) has one effect and one answer: a command that is not newer than the newest
and has no stored answer is rejected, however old it is.
"""

from typing import Self

from pydantic import BaseModel, ConfigDict

from rlfleet_contract.worker.fence import Fence, Place
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.errors import SidecarError

KEPT = 16
"""A driver has one change and one prepare under way, and repeats them soon."""
_IN_CHANGE = frozenset({Stage.PAUSED, Stage.LOADING, Stage.LOADED, Stage.PROVED})


class StoredAnswer(BaseModel):
    """The answer to a command."""

    model_config = ConfigDict(frozen=True)

    status: int
    """HTTP status."""
    body: str


class SeenCommand(BaseModel):
    """A received command; without an answer while it is under way."""

    model_config = ConfigDict(frozen=True)

    sequence: int
    digest: str
    """Of the command's body, to detect two commands with the same number."""
    answer: StoredAnswer | None = None


class SeenCommands(BaseModel):
    """The highest epoch seen, and its last commands."""

    model_config = ConfigDict(frozen=True)

    epoch: int | None = None
    sequence: int = -1
    """The highest of this epoch."""
    over: int = -1
    """Of this epoch: the driver has cancelled all commands up to here."""
    orders: tuple[SeenCommand, ...] = ()

    def at(self, epoch: int) -> Self:
        """Return the state after an epoch was seen; a higher one discards all commands."""
        if self.epoch is not None and epoch <= self.epoch:
            return self
        return type(self)(epoch=epoch)

    def ending(self, place: Place) -> Self:
        """Return the state after the driver has cancelled all commands up to a place."""
        seen = self.at(place.epoch)
        if place.epoch != seen.epoch or place.sequence <= seen.over:
            return seen
        return seen.model_copy(update={"over": place.sequence})

    def receiving(self, fence: Fence, digest: str) -> Self:
        """Return the state after a command has arrived, before it has any effect."""
        seen = self.at(fence.epoch)
        orders = [order for order in seen.orders if order.sequence != fence.sequence]
        orders.append(SeenCommand(sequence=fence.sequence, digest=digest))
        return type(self)(
            epoch=seen.epoch,
            sequence=max(seen.sequence, fence.sequence),
            over=seen.over,
            orders=tuple(orders[-KEPT:]),
        )

    def order_of(self, fence: Fence) -> SeenCommand | None:
        """Return the stored command with a fence's number, if there is one."""
        return next((order for order in self.orders if order.sequence == fence.sequence), None)

    def answering(self, fence: Fence, answer: StoredAnswer) -> Self:
        """Return the state with a command's answer; one of a former epoch is not stored."""
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
    seen: SeenCommands, fence: Fence, digest: str, *, is_under_way: bool = False
) -> StoredAnswer | None:
    """Return the stored answer to this command, or None if it must be carried out or joined.

    A command without an answer was interrupted by the sidecar's exit. It is carried out unless
    a newer one has arrived, because the stage machine continues from any stage. A cancelled
    command never is, because its driver has planned with the worker's state without it.

    Raises StaleEpoch for a stale command, and InvalidRequest for a number used twice.
    """
    if seen.epoch is None or fence.epoch > seen.epoch:
        return None
    if fence.epoch < seen.epoch:
        raise _stale(
            seen,
            f"stale command (epoch {fence.epoch}, current {seen.epoch}): the sender is no longer"
            " leader",
        )
    known = seen.order_of(fence)
    if known is not None and known.digest != digest:
        raise SidecarError(
            Code.INVALID_REQUEST,
            f"fence: {fence.place} already belongs to another command; use the next sequence",
        )
    if known is not None and known.answer is not None:
        return known.answer
    if is_under_way or _is_due(seen, fence, known):
        return None
    raise _stale(
        seen,
        f"stale command (sequence {fence.sequence}, last seen {seen.sequence}, cancelled up to"
        f" {seen.over}); observe this worker and send a new one",
    )


def _is_due(seen: SeenCommands, fence: Fence, known: SeenCommand | None) -> bool:
    """Return whether a command without an answer is the newest and is not cancelled."""
    is_new = fence.sequence > seen.sequence
    is_interrupted = known is not None and fence.sequence == seen.sequence
    return (is_new or is_interrupted) and fence.sequence > seen.over


def demand_addressee(fence: Fence, fleet: str, pod: str) -> None:
    """Raise WrongWorker if the command names another fleet or pod; unknown UIDs do not count."""
    for word, meant, here in (("fleet", fence.fleet, fleet), ("pod", fence.pod, pod)):
        if here and meant != here:
            raise SidecarError(
                Code.WRONG_WORKER,
                f"wrong worker ({word} {here}, expected {meant}); look up the worker's address",
            )


def demand_unled(stage: Stage, operation: str, led_by: tuple[str, int | None] | None) -> None:
    """Raise Busy for a command without a fence during an operator's change."""
    if led_by is None or stage not in _IN_CHANGE:
        return
    leading, epoch = led_by
    if epoch is not None and leading != operation:
        raise SidecarError(
            Code.BUSY,
            f"the operator is changing this worker (operation {leading}, epoch {epoch}, stage"
            f" {stage}); retry after that",
        )


def _stale(seen: SeenCommands, message: str) -> SidecarError:
    error = SidecarError(Code.STALE_EPOCH, message)
    error.epoch = seen.epoch
    return error
