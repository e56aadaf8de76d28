"""Where the next piece of a version comes from: a worker before this one, or the store.

The receiving threads ask it, and the feed (feed.py) reports what other workers have. For any
thread. It must stay true that a piece whose hash is unknown comes only from the store, and that
a worker which sent wrong bytes is not asked again.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from rlfleet_contract.worker.supply import Supply
from rlfleet_sidecar.sharing.choice import is_slow
from rlfleet_sidecar.sharing.offering import Offering
from rlfleet_sidecar.sharing.piece_client import Fetched

START_S = 15.0
"""How long others may take to begin: a prepare waits for its marker, or for a change."""
_PATIENCE_S, _LONG_PATIENCE_S = 10.0, 30.0
"""How long a worker waits for a piece before it reads the store; longer, unless it succeeds a
reader, so that not all do so at once."""
_ABSENT_S = 0.5
_REST_S, _LONGEST_REST_S = 1.0, 8.0
WAIT_S = 0.1
"""How long a thread waits before it asks for the way again."""
SLOW_PIECES, _SLOW_REST_S = 8, 60.0
"""So many slow pieces of a sender in sequence, and how long it is then left alone."""
PASSED_OVER = 3
"""So many senders may be slow before this worker takes its own link for the slow one."""


class Way(Enum):
    """What to do for a piece, if no worker is to be asked."""

    STORE = auto()
    WAIT = auto()


@dataclass(slots=True)
class Sender:
    """A worker before this one."""

    address: str
    failures: int = 0
    again_at: float = 0.0
    is_absent: bool = False
    """Whether it does not share the version, or not yet."""
    has_lied: bool = False
    slow: int = 0
    """The last pieces that took too long, one after the other."""

    def is_available(self, now: float) -> bool:
        """Return whether it may be asked."""
        return not self.has_lied and now >= self.again_at

    def rest(self, now: float) -> None:
        """Leave it alone for a while, longer each time."""
        self.again_at = now + min(_LONGEST_REST_S, _REST_S * 2**self.failures)
        self.failures += 1


class PieceRoute:
    """The choice for one version."""

    def __init__(
        self, supply: Supply, offering: Offering, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.senders: Sequence[Sender] = [Sender(address) for address in supply.senders]
        self._succeeds = supply.succeeds
        self._offering = offering
        self._clock = clock
        self._current = 0
        self._passed_over: list[Sender] | None = []
        """Senders that were too slow; None once this worker's own link is taken for slow."""
        self.hashed_per_s = 0.0
        """The pieces that readers hash; the feed counts them."""
        self._is_alone = False
        """Whether no reader is left and this worker does not succeed one."""
        self._changed = threading.Condition()
        self._begun_at = clock()
        self._got_at: float | None = None

    @property
    def current(self) -> Sender | None:
        """The worker to receive from; None without any."""
        return self.senders[self._current] if self.senders else None

    def way(self, number: int) -> Way | Sender:
        """Return where a piece comes from now."""
        with self._changed:
            if self._offering.hash_of(number) is None:
                if self._offering.reads or self._is_alone:
                    return Way.STORE
            elif (sender := self._next()) is not None:
                return sender
            elif self._is_time_over():
                return Way.STORE
            return Way.WAIT

    def way_or_wait(self, number: int) -> Way | Sender:
        """Return where a piece comes from; WAIT only after a moment, or once there is news."""
        with self._changed:
            if (found := self.way(number)) is Way.WAIT:
                self._changed.wait(WAIT_S)
            return found

    def is_right(self, sender: Sender, number: int, hashed: bytes) -> bool:
        """Return whether a worker sent the right bytes, by their hash; else never ask it again."""
        if hashed == self._offering.hash_of(number):
            return True
        with self._changed:
            sender.has_lied = True
        return False

    def came(self, sender: Sender, result: Fetched, took_s: float = 0.0) -> None:
        """Take up what came of a request, and how long the bytes of a piece took."""
        with self._changed:
            now = self._clock()
            if sender.is_absent and result in {Fetched.WHOLE, Fetched.NOT_YET}:
                # It shares the version now: this worker would else leave it for one further up.
                sender.again_at = 0.0
            sender.is_absent = result is Fetched.ABSENT
            match result:
                case Fetched.WHOLE:
                    sender.failures, self._got_at = 0, now
                    self._judge(sender, took_s)
                case Fetched.ABSENT:
                    sender.again_at = now + _ABSENT_S
                case Fetched.BROKEN if sender.is_available(now):
                    # Several threads may have waited for it: that is one failure.
                    sender.rest(now)
                case _:
                    pass

    def _judge(self, sender: Sender, took_s: float) -> None:
        """Pass over a sender that is slow; if several are, it is this worker's own link."""
        if self._passed_over is None:
            return
        sender.slow = sender.slow + 1 if is_slow(took_s, self.hashed_per_s) else 0
        if sender.slow < SLOW_PIECES or sender in self._passed_over:
            return
        if len(self._passed_over) < PASSED_OVER and len(self.available()) > 1:
            self._passed_over.append(sender)
            sender.again_at = self._clock() + _SLOW_REST_S
        else:
            for one in self._passed_over:
                one.again_at = 0.0
            self._passed_over, self._current = None, 0

    def prefer(self, sender: Sender) -> None:
        """Receive from this worker from now on."""
        with self._changed:
            self._current = self.senders.index(sender)

    def read_store(self, *, alone: bool) -> None:
        """Read what is not hashed from the store; unless ``alone``, hash it for others."""
        with self._changed:
            self._is_alone = alone
            self._offering.reads = self._offering.reads or not alone
            self._changed.notify_all()

    def hashed(self) -> None:
        """Continue: more hashes are known."""
        with self._changed:
            self._changed.notify_all()

    def available(self) -> list[Sender]:
        """Return the workers that may be asked, the nearest first."""
        now = self._clock()
        return [sender for sender in self.senders if sender.is_available(now)]

    def _next(self) -> Sender | None:
        """Return the current worker, or the first available one of those that failed least.

        One that does not share the version yet stays the current one: those of a line do not
        begin at the same moment, and two that receive from one worker halve its rate.
        """
        now, current = self._clock(), self.current
        if current is None or current.is_available(now):
            return current
        found = min(self.available(), key=lambda sender: sender.failures, default=None)
        if found is not None and not current.is_absent:
            self._current = self.senders.index(found)
        return found

    def _is_time_over(self) -> bool:
        if self._offering.reads or all(sender.has_lied for sender in self.senders):
            return True
        patience_s = _PATIENCE_S if self._succeeds else _LONG_PATIENCE_S
        if self._got_at is None:
            return self._clock() - self._begun_at > max(START_S, patience_s)
        return self._clock() - self._got_at > patience_s
