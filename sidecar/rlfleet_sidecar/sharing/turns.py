"""Which requests for pieces a worker answers next. Pure.

A link that sends many pieces at once sends each late, and a line of hundreds of workers adds up
what each is late. So a receiver is sent few pieces at once, in the order of its requests.

A worker can send about as much as it receives. So a second receiver halves the rate of the first
and of all behind it. One that forwards nothing (because it is slow, or sends wrong bytes, and was
passed over) therefore gets what is left by those that forward.
"""

from collections.abc import Callable
from dataclasses import dataclass

AT_ONCE = 2
"""Pieces that one receiver is sent at once: while one ends, the next is on its way."""
_COUNTS_S = 3.0
"""A receiver that takes longer for a piece no longer holds up others: it may be gone."""


@dataclass(slots=True, eq=False)
class PieceTurn:
    """One request for a piece that this worker has."""

    receiver: str
    forwards: bool
    begin: Callable[[], None]
    """Called once the piece may be sent."""
    begun_at: float | None = None


class Turns:
    """The requests of all receivers. One thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._turns: list[PieceTurn] = []

    def ask(self, turn: PieceTurn) -> None:
        """Queue a request; it may begin at once."""
        self._turns.append(turn)
        self._begin(turn)

    def end(self, turn: PieceTurn) -> None:
        """Take up that a piece was sent, or is no longer wanted."""
        if turn in self._turns:
            self._turns.remove(turn)
            for waiting in [one for one in self._turns if one.begun_at is None]:
                self._begin(waiting)

    def _begin(self, turn: PieceTurn) -> None:
        if self._may_begin(turn):
            turn.begun_at = self._clock()
            turn.begin()

    def _may_begin(self, turn: PieceTurn) -> bool:
        sent = [one for one in self._turns if one.begun_at is not None]
        if sum(one.receiver == turn.receiver for one in sent) >= AT_ONCE:
            return False
        return turn.forwards or not any(
            one.forwards and one.receiver != turn.receiver and not self._takes_long(one)
            for one in self._turns
        )

    def _takes_long(self, turn: PieceTurn) -> bool:
        return turn.begun_at is not None and self._clock() - turn.begun_at >= _COUNTS_S
