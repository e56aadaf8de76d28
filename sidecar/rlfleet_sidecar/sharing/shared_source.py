"""A version whose pieces come from other workers, or from the store for them.

A source (staging/source.py). It must stay true that a piece is written, and offered to others,
only after its hash was checked, or was computed of what the store gave to this worker.
"""

import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from blake3 import blake3

from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.supply import PIECE_BYTES, Supply
from rlfleet_sidecar.checkpoints.folder import Folder, Location
from rlfleet_sidecar.checkpoints.headers import damage_named
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.sharing.feed import (
    Answer,
    Feed,
    FeedTurn,
    Question,
    ReaderConflictError,
    Rest,
    Trial,
)
from rlfleet_sidecar.sharing.offering import Offering
from rlfleet_sidecar.sharing.piece_client import Fetched, PeerTLS, PieceClient
from rlfleet_sidecar.sharing.pieces import Piece
from rlfleet_sidecar.sharing.route import PieceRoute, Sender, Way
from rlfleet_sidecar.staging.crew import Crew
from rlfleet_sidecar.staging.folder_source import unchanged
from rlfleet_sidecar.staging.range_copy import write_at
from rlfleet_sidecar.staging.source import Done

THREADS = 6
"""Each has a piece in memory, and waits for the network most of its time."""
SAMPLE = 64 * 1024
"""Of each piece, so much is compared with the store by the workers next to a reader."""
_log = logging.getLogger(__name__)


class SharedSource:
    """Receives checked files; a source (staging/source.py)."""

    def __init__(
        self,
        folder: Folder,
        files: Sequence[FileStamp],
        supply: Supply,
        offering: Offering,
        token: Callable[[], str],
        demand: Callable[[], None],
        tls: PeerTLS | None = None,
    ) -> None:
        """``demand`` raises once the version is no longer wanted."""
        self._folder = folder
        self._files = {stamp.name: stamp for stamp in files}
        self._supply = supply
        self._offering = offering
        self._client = partial(PieceClient, offering.version, offering.edition, token, tls)
        self._demand = demand
        self._route = PieceRoute(supply, offering)
        self._lock = threading.Lock()
        self._numbers: Iterator[int] = iter(range(len(offering.pieces)))
        self._from_store = 0
        self._is_over = False

    @property
    def sizes(self) -> Mapping[str, int]:
        """The checked files, with their bytes."""
        return {name: stamp.size for name, stamp in self._files.items()}

    def where(self, name: str) -> Location:
        """Return a file's place in the store."""
        return self._folder.path / name

    def hashes(self) -> tuple[str, ...]:
        """Return the hashes of all pieces, if this worker has read the store."""
        return self._offering.hashes()

    def fill(self, draft: Path, done: Done) -> None:
        """Obtain every piece; raises SidecarError if a file is not the checked one."""
        for stamp in self._files.values():
            with (draft / stamp.name).open("xb") as made:
                made.truncate(stamp.size)
        with Crew("rlfleet-share", self._end) as crew:
            if self._supply.readers:
                crew.start(1, self._feed)
            crew.start(THREADS, partial(self._work, draft, done))
        extra = {
            "version": self._offering.version,
            "bytes": sum(self.sizes.values()),
            "from_store": self._from_store,
        }
        _log.info("Version received", extra=extra)

    def _end(self) -> None:
        self._is_over = True
        self._route.hashed()

    def _feed(self) -> None:
        client, feed = self._client(), Feed(self._supply, self._offering, self._route)
        try:
            while not self._is_over and self._offering.held < len(self._offering.pieces):
                self._demand()
                self._turn(feed.turn(), client)
        except ReaderConflictError as error:
            raise self._conflict(self._offering.pieces[error.args[0]]) from error
        finally:
            client.close()

    def _turn(self, turn: FeedTurn[None], client: PieceClient) -> None:
        """Do what the feed wants."""
        answer: Answer = None
        with suppress(StopIteration):
            while True:
                step, answer = turn.send(answer), None
                match step:
                    case Question(address, first):
                        answer = client.holding(address, first)
                    case Trial(number):
                        piece = self._offering.pieces[number]
                        self._fill(piece.name, piece.begin, _room_for(piece))
                    case Rest(seconds):
                        time.sleep(seconds)

    def _work(self, draft: Path, done: Done) -> None:
        client, buffer = self._client(), memoryview(bytearray(PIECE_BYTES))
        try:
            while not self._is_over and (number := self._take()) is not None:
                piece = self._offering.pieces[number]
                view = buffer[: piece.end - piece.begin]
                self._obtain(client, number, view)
                if self._is_over:
                    return
                _write(draft / piece.name, view, piece.begin)
                done(piece.name, piece.begin, piece.end)
                self._offering.keep(number)
        finally:
            client.close()

    def _take(self) -> int | None:
        with self._lock:
            return next(self._numbers, None)

    def _obtain(self, client: PieceClient, number: int, view: memoryview) -> None:
        """Fill the view with a piece; returns also when the pass is over."""
        while not self._is_over:
            self._demand()
            match self._route.way_or_wait(number):
                case Way.STORE:
                    self._read(number, view)
                    return
                case Sender() as sender:
                    if self._receive(client, sender, number, view):
                        return
                case Way.WAIT:
                    pass

    def _receive(self, client: PieceClient, sender: Sender, number: int, view: memoryview) -> bool:
        """Return whether another worker sent the right bytes."""
        forwards = self._offering.forwards
        result, took_s = client.fetch(sender.address, number, view, forwards=forwards)
        if result is Fetched.WHOLE and not self._route.is_right(
            sender, number, blake3(view).digest()
        ):
            extra = {"version": self._offering.version, "sender": sender.address, "piece": number}
            _log.warning("Worker sent wrong bytes, not asking it again", extra=extra)
            return False
        self._route.came(sender, result, took_s)
        if result is Fetched.WHOLE and self._supply.succeeds:
            self._compare(self._offering.pieces[number], view)
        return result is Fetched.WHOLE

    def _read(self, number: int, view: memoryview) -> None:
        """Fill the view from the store, and hash it."""
        piece = self._offering.pieces[number]
        self._fill(piece.name, piece.begin, view)
        # As another worker that read it did, if there is one.
        if not self._offering.note(number, blake3(view).digest()):
            raise self._conflict(piece)

    def _compare(self, piece: Piece, view: memoryview) -> None:
        """Raise if a part of a received piece is not what the store has."""
        size = min(SAMPLE, len(view))
        at = random.randint(0, len(view) - size)  # noqa: S311 - no secret
        sample = memoryview(bytearray(size))
        self._fill(piece.name, piece.begin + at, sample)
        if sample != view[at : at + size]:
            raise self._conflict(piece)

    def _fill(self, name: str, begin: int, view: memoryview) -> None:
        where = self.where(name)
        with damage_named(where), unchanged(self._folder, self._files[name]) as reading:
            reading.fill(view, begin)
        with self._lock:
            self._from_store += len(view)

    def _conflict(self, piece: Piece) -> SidecarError:
        return SidecarError(
            Code.CHECKPOINT_UNREADABLE,
            f"{self.where(piece.name)} at byte {piece.begin} is not what a worker read"
            f" ({', '.join(self._supply.readers)[:200]}); delete that worker's pod, or set"
            " spec.weights.sharing to false",
        )


def _room_for(piece: Piece) -> memoryview:
    return memoryview(bytearray(piece.end - piece.begin))


def _write(path: Path, view: memoryview, begin: int) -> None:
    target = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        write_at(target, view, begin)
    finally:
        os.close(target)
