"""Asks readers for hashes, and looks for a better worker to receive from. Does no I/O.

A turn yields what is to be asked, tried or waited for, and is sent the answers (shared_source.py).

It must stay true that a lost reader, or a slow one, is replaced: by the first worker that
succeeds it, and by every worker for itself when no such worker is left.
"""

import time
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar

from rlfleet_contract.worker.supply import Holding, Supply
from rlfleet_sidecar.sharing.choice import Offer, choose, is_late, is_reader_slow, is_to_blame
from rlfleet_sidecar.sharing.offering import WINDOW_S, Offering
from rlfleet_sidecar.sharing.piece_client import Fetched
from rlfleet_sidecar.sharing.route import START_S, PieceRoute, Sender

_ROUND_S, _LONG_ROUND_S = 0.1, 0.5
"""Between two questions for hashes; a reader is asked by all, so most ask seldom."""
_IDLE_ROUND_S = 1.0
"""Between two questions to a worker that does not read."""
_LOST_S = 10.0
"""A reader that has not answered for so long is lost."""
_ALONE_S = 20.0
_LOOK_S = 0.5
_BLAME_S = 5.0
"""How long a sender may hold up this worker: longer than it waits for one that is gone."""
_TRIAL_S = 15.0
"""From when readers read to the first trial of the store; what a slow reader must cost at least."""
_TURN_S = 3.0
"""Between the first trials of two that succeed a reader: the second sees what the first reads."""
_LEAST_S = 1e-6
_NEVER = float("-inf")
_TRIALS_GROW = 4.0
"""From trial to trial: each costs a piece."""


class Question(NamedTuple):
    """Ask a worker what it has, with hashes from a piece on."""

    address: str
    first: int


class Trial(NamedTuple):
    """Read a piece of the store: it counts how long that takes."""

    number: int


class Rest(NamedTuple):
    """Wait."""

    seconds: float


_Result = TypeVar("_Result")
Answer: TypeAlias = Holding | Fetched | None
"""To a question: without a holding it is ABSENT or BROKEN. None after all else."""
FeedTurn: TypeAlias = Generator[Question | Trial | Rest, Answer, _Result]


class ReaderConflictError(Exception):
    """Two workers that read the store hashed a piece differently; its number."""


@dataclass(slots=True)
class _Reader:
    at: Sender
    answered_at: float
    """When it last answered as one that reads or receives; at first the end of its start, and never
    for one that is of no use."""
    is_reading: bool = False
    has_failed: bool = False
    next_at: float = 0.0


@dataclass(slots=True)
class _Trials:
    begun_at: float | None = None
    """When a reader first answered that it reads."""
    next_at: float = 0.0
    pause_s: float = _TRIAL_S


class Feed:
    """What other workers have of one version, until this one has all."""

    def __init__(
        self,
        supply: Supply,
        offering: Offering,
        route: PieceRoute,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._started_at = clock() + START_S
        """Until then a reader may not have begun."""
        start = self._started_at - _LOST_S
        self._readers = [_Reader(Sender(address), start) for address in supply.readers]
        self._succeeds = supply.succeeds
        self._offering, self._route, self._clock = offering, route, clock
        self._known: deque[tuple[float, int]] = deque()
        self._trials = _Trials(pause_s=_TRIAL_S + _TURN_S * max(0, len(supply.readers) - 1))
        self._look_at = clock() + _LOOK_S
        self._blames_from = clock() + _BLAME_S

    def turn(self) -> FeedTurn[None]:
        """Ask once, and take a short rest; raises ReaderConflictError."""
        for reader in self._readers:
            yield from self._ask(reader)
        yield from self._look_around()
        yield from self._replace_readers()
        yield Rest(_ROUND_S)

    def _ask(self, reader: _Reader) -> FeedTurn[None]:
        now, first = self._clock(), self._offering.first_unknown()
        if first == len(self._offering.pieces) or not self._is_to_be_asked(reader, now):
            return
        found = yield Question(reader.at.address, first)
        if isinstance(found, Holding) and found.pieces == len(self._offering.pieces):
            self._answered(reader, found, now)
        else:
            self._failed(reader, now, is_gone=found is not Fetched.ABSENT)

    def _is_to_be_asked(self, reader: _Reader, now: float) -> bool:
        if now < max(reader.next_at, reader.at.again_at):
            return False
        # One that is gone takes seconds in which no hash comes.
        return not (reader.has_failed and any(one.is_reading for one in self._readers))

    def _failed(self, reader: _Reader, now: float, *, is_gone: bool) -> None:
        reader.has_failed, reader.is_reading = is_gone, False
        if now < self._started_at:
            reader.next_at = now + _LONG_ROUND_S
        else:
            reader.at.rest(now)

    def _answered(self, reader: _Reader, found: Holding, now: float) -> None:
        reader.has_failed, reader.is_reading = False, found.reads
        reader.at.failures = 0
        # One that has all and has not read the store will never send a hash.
        is_of_use = found.reads or found.held < found.pieces
        reader.answered_at = self._clock() if is_of_use else _NEVER
        pause_s = _ROUND_S if self._succeeds else _LONG_ROUND_S
        reader.next_at = now + (pause_s if found.reads else _IDLE_ROUND_S)
        self._take(found)
        if found.reads:
            self._count()

    def _take(self, found: Holding) -> None:
        last = len(self._offering.pieces)
        for number, text in enumerate(found.hashes, found.first):
            is_known = text is None or number >= last
            if not is_known and not self._offering.note(number, bytes.fromhex(text or "")):
                raise ReaderConflictError(number)
        self._route.hashed()

    def _count(self) -> None:
        """Count the hashes at the moment of an answer, for one may come late and bring many."""
        now, known = self._clock(), self._known
        known.append((now, self._offering.known))
        while len(known) > 1 and known[1][0] <= now - WINDOW_S:
            known.popleft()
        self._route.hashed_per_s = self._hashed / WINDOW_S

    @property
    def _hashed(self) -> int:
        """The hashes of the last seconds in which a reader answered: as many as its pace."""
        if not self._known:
            return 0
        (begun, before), (ended, after) = self._known[0], self._known[-1]
        return round((after - before) * WINDOW_S / max(ended - begun, WINDOW_S))

    def _look_around(self) -> FeedTurn[None]:
        """Ask the worker that this one receives from what it has, and all others if it is slow."""
        now, current, offering = self._clock(), self._route.current, self._offering
        total = len(offering.pieces)
        if now < self._look_at or current is None:
            return
        self._look_at = now + _LOOK_S
        found = (yield from self._look_at_one(current)) if current.is_available(now) else None
        offering.within_reach = offering.held if found is None else found.held
        if (
            found is None
            or not is_late(offering.held, offering.known, total, offering.pace, self._hashed)
            or not is_to_blame(_offer(found), offering.held, total, self._hashed)
        ):
            self._blames_from = now + _BLAME_S
        elif now >= self._blames_from:
            yield from self._choose(total)

    def _choose(self, total: int) -> FeedTurn[None]:
        senders = self._route.available()
        offers: list[Offer | None] = []
        for sender in senders:
            found = yield from self._look_at_one(sender)
            offers.append(None if found is None else _offer(found))
        place = choose(offers, total, self._hashed)
        if place is not None:
            self._route.prefer(senders[place])

    def _look_at_one(self, sender: Sender) -> FeedTurn[Holding | None]:
        found = yield Question(sender.address, len(self._offering.pieces))
        if isinstance(found, Holding):
            return found
        self._route.came(sender, found or Fetched.BROKEN)
        return None

    def _replace_readers(self) -> FeedTurn[None]:
        offering, now = self._offering, self._clock()
        if offering.reads or offering.known == len(offering.pieces):
            return
        silent_s = now - max(reader.answered_at for reader in self._readers)
        if self._succeeds and (silent_s > _LOST_S or (yield from self._are_slow(now))):
            self._route.read_store(alone=False)
        elif silent_s > _LOST_S + _ALONE_S:
            self._route.read_store(alone=True)

    def _are_slow(self, now: float) -> FeedTurn[bool]:
        """Return whether the store gives this worker much more than readers have hashed."""
        offering, trials = self._offering, self._trials
        if not any(reader.is_reading for reader in self._readers):
            return False
        if trials.begun_at is None:
            trials.begun_at, trials.next_at = now, now + trials.pause_s
        if now < trials.next_at:
            return False
        trials.pause_s *= _TRIALS_GROW
        trials.next_at = now + trials.pause_s
        # Another may have begun to read lately, in the place of a slow one.
        hashed_per_s = max(offering.known / (now - trials.begun_at), self._route.hashed_per_s)
        begun = self._clock()
        yield Trial(offering.first_unknown())
        read_per_s = 1 / max(self._clock() - begun, _LEAST_S)
        left = len(offering.pieces) - offering.known
        return is_reader_slow(hashed_per_s, read_per_s, left, _TRIAL_S)


def _offer(found: Holding) -> Offer:
    return Offer(found.held, found.within_reach, found.pace)
