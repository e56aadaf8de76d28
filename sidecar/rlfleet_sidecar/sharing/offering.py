"""What a worker can send of one version, while it receives it or once it is staged.

For any thread. It must stay true that only bytes whose hash was checked are sent, only of files
of the version, and hashes only by a worker that reads the store.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.supply import Holding
from rlfleet_sidecar.checkpoints.safe_paths import open_copy
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.sharing.pieces import Piece
from rlfleet_sidecar.sharing.turns import Turns

WINDOW_S = 2.0
"""The time over which a pace is counted."""
_FEW = 16
"""Pieces with which a worker counts as one that forwards, though none asked it yet."""
_CHUNK = 1024 * 1024
_MOST_HASHES = 4096
"""In one answer: some 300 KiB."""
_Waiter = tuple[asyncio.AbstractEventLoop, asyncio.Event]


class Offering:
    """The pieces of one version."""

    def __init__(
        self,
        version: str,
        edition: str,
        pieces: Sequence[Piece],
        folder: Path,
        *,
        reads: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.version = version
        self.edition = edition
        self.pieces = pieces
        self.reads = reads
        """Whether this worker reads the store, or has read it."""
        self.within_reach = 0
        """The pieces of the worker that this one receives from."""
        self.held = 0
        self.known = 0
        """The number of known hashes."""
        self.turns = Turns(clock)
        """The requests of other workers; of the thread that serves them."""
        self._folder = folder
        self._clock = clock
        self._stamps: Mapping[str, FileStamp] = {}
        self._hashes: list[bytes | None] = [None] * len(pieces)
        self._first_unknown = 0
        self._has = bytearray(len(pieces))
        self._arrivals: deque[float] = deque(maxlen=100_000)
        self._arrived_at = 0.0
        self._sent_at: float | None = None
        self._lock = threading.Lock()
        self._waiting: set[_Waiter] = set()

    @classmethod
    def of_copy(
        cls,
        version: str,
        edition: str,
        pieces: Sequence[Piece],
        folder: Path,
        files: Sequence[FileStamp],
        hashes: Sequence[str],
    ) -> "Offering":
        """Return that of a staged copy; with hashes if its worker had read the store."""
        found = cls(version, edition, pieces, folder, reads=bool(hashes))
        found._stamps = {stamp.name: stamp for stamp in files}
        found._has = bytearray(b"\1" * len(pieces))
        found.held = found.within_reach = len(pieces)
        for number, text in enumerate(hashes):
            found.note(number, bytes.fromhex(text))
        return found

    def hash_of(self, number: int) -> bytes | None:
        """Return a piece's hash; None while it is unknown."""
        return self._hashes[number]

    def note(self, number: int, hashed: bytes) -> bool:
        """Take up a piece's hash; returns whether it is the known one, if there is one."""
        with self._lock:
            known = self._hashes[number]
            if known is None:
                self._hashes[number] = hashed
                self.known += 1
            return known in {None, hashed}

    def first_unknown(self) -> int:
        """Return the number of the first piece whose hash is unknown; their count if none is."""
        with self._lock:
            first = self._first_unknown
            while first < self.known and self._hashes[first] is not None:
                first += 1
            self._first_unknown = first
            return first

    def hashes(self) -> tuple[str, ...]:
        """Return all hashes, for a worker that reads; empty if one is unknown."""
        found = [one.hex() for one in self._hashes if one is not None]
        return tuple(found) if self.reads and len(found) == len(self.pieces) else ()

    def keep(self, number: int) -> None:
        """Offer a piece that is written and checked."""
        with self._lock:
            self._has[number] = 1
            self.held += 1
            self._arrived_at = self._clock()
            self._arrivals.append(self._arrived_at)
            waiting, self._waiting = self._waiting, set()
        for loop, event in waiting:
            loop.call_soon_threadsafe(event.set)

    def has(self, number: int) -> bool:
        """Return whether a piece can be sent."""
        return bool(self._has[number])

    async def until_kept(self, number: int) -> None:
        """Wait until a piece can be sent."""
        while True:
            waiter = (asyncio.get_running_loop(), asyncio.Event())
            with self._lock:
                if self._has[number]:
                    return
                self._waiting.add(waiter)
            try:
                await waiter[1].wait()
            finally:
                with self._lock:
                    self._waiting.discard(waiter)

    @property
    def pace(self) -> int:
        """The number of pieces of the last seconds."""
        with self._lock:
            while self._arrivals and self._arrivals[0] < self._clock() - WINDOW_S:
                self._arrivals.popleft()
            return len(self._arrivals)

    def sent(self) -> None:
        """Take up that another worker received a piece."""
        self._sent_at = self._clock()

    @property
    def forwards(self) -> bool:
        """Whether another worker receives what this one does, or hardly could yet.

        While nothing arrives it is as before: a stalled line would else have no one that forwards.
        """
        if self._sent_at is None:
            return self.held < _FEW
        return self._arrived_at - self._sent_at < WINDOW_S

    def holding(self, first: int) -> Holding:
        """Return what this worker has, with the hashes from this piece on."""
        found = self._hashes[first : first + _MOST_HASHES] if self.reads else []
        while found and found[-1] is None:
            found.pop()
        return Holding(
            pieces=len(self.pieces),
            held=self.held,
            within_reach=self.within_reach,
            pace=self.pace,
            reads=self.reads,
            first=first,
            hashes=[None if one is None else one.hex() for one in found],
        )

    def opened(self, number: int) -> Iterator[bytes]:
        """Return a piece's bytes in chunks; raises before the first if its file is gone. Blocking.

        The caller names a number and never a file.
        """
        chunks = self._chunks(self.pieces[number])
        try:
            first = next(chunks)
        except OSError as error:
            raise SidecarError(
                Code.NOT_PREPARED, f"version {self.version} is no longer staged; ask another worker"
            ) from error
        return chain([first], chunks)

    def _chunks(self, piece: Piece) -> Iterator[bytes]:
        with open_copy(self._folder) as folder, folder.open(piece.name) as reading:
            if self._stamps.get(piece.name, reading.stamp) != reading.stamp:
                raise SidecarError(
                    Code.NOT_PREPARED,
                    f"{self._folder / piece.name} has changed since its check; ask another worker",
                )
            for begin in range(piece.begin, piece.end, _CHUNK):
                yield reading.read(min(_CHUNK, piece.end - begin), begin)
