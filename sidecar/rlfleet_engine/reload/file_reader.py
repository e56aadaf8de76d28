"""Reads the tensors of checked files and digests exactly the bytes that it yields.

The digested bytes must be the installed ones. So tensors are read into memory once and never
mapped: a file that changes later changes neither. A tensor above the bound is read only when
vLLM takes it: fused experts have 10 to 20 GB each, and vLLM keeps one while it takes the next.
What a preload holds was digested there, in sealed memory.
"""

import os
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Self

from rlfleet_contract.engine.rank_report import Installed
from rlfleet_contract.engine.safetensors import BLAKE3, Digest, FileStamp, Tensor
from rlfleet_engine.reload.checked_file import ChangedError, CheckedFile, unbind
from rlfleet_engine.reload.held import HeldFiles, HeldTensor

_THREADS = max(2, min(8, os.cpu_count() or 1))
_AHEAD = 2 * _THREADS
"""The number of tensors to read and digest ahead."""
_AHEAD_BYTES = 1024 * 1024 * 1024
"""Their bytes together; every rank reads by itself, and all share the node's memory."""
_CHUNK = 4 * 1024 * 1024
"""Digested right after it is read, while a processor's cache has it."""
Data = bytearray | memoryview


class _Place(NamedTuple):
    tensor: Tensor
    source: CheckedFile | HeldTensor
    """Its file, or what a preload holds of it."""


class _ReadTensor(NamedTuple):
    data: Data
    digest: bytes


class _Ahead:
    """Reads tensors in order in a few threads, as far ahead as the bounds allow."""

    def __init__(self, places: Iterable[_Place], pool: Executor, limit: int) -> None:
        self._left = deque(places)
        self._pool = pool
        self._limit = limit
        self._read: deque[tuple[_Place, Future[_ReadTensor]]] = deque()
        self._nbytes = 0

    def fill(self) -> None:
        """Start more reads; a tensor above the limit waits until it is taken."""
        while self._left and len(self._read) < _AHEAD and self._fits(self._left[0]):
            self._submit()

    def take(self) -> tuple[_Place, Data, bytes] | None:
        """Return the next tensor with its hash; None at the end."""
        if not self._read:
            if not self._left:
                return None
            self._submit()
        place, future = self._read.popleft()
        self._nbytes -= _read_bytes(place)
        return place, *future.result()

    def _fits(self, place: _Place) -> bool:
        return self._nbytes + _read_bytes(place) <= self._limit

    def _submit(self) -> None:
        place = self._left.popleft()
        self._nbytes += _read_bytes(place)
        self._read.append((place, _begun(place, self._pool)))


class FileReader:
    """Yields tensors of one checkpoint once, in the order of their names."""

    def __init__(
        self,
        directory: str,
        files: Sequence[FileStamp],
        ahead_bytes: int = _AHEAD_BYTES,
        held: HeldFiles | None = None,
        names: Collection[str] | None = None,
    ) -> None:
        """Read all tensors, or those with these names; ``held`` is what a preload holds."""
        self._names = names
        self._directory = Path(directory)
        self._files = files
        self._ahead_bytes = ahead_bytes
        self._held: HeldFiles = held or {}
        self._opened: list[CheckedFile] = []
        self._places: list[_Place] = []
        self._digest = Digest()
        self._tensors = 0
        self._nbytes = 0
        self._preloaded = 0
        self._sums: dict[str, int] = {}

    def __enter__(self) -> Self:
        try:
            for stamp in self._files:
                self._places += self._places_in(stamp)
        except BaseException:
            self._close()
            raise
        if self._names is not None:
            self._places = [one for one in self._places if one.tensor.name in self._names]
        self._places.sort(key=lambda place: place.tensor.name)
        self._sums = {
            place.tensor.name: place.source.word_sum
            for place in self._places
            if isinstance(place.source, HeldTensor)
        }
        return self

    def __exit__(self, *_error: object) -> None:
        self._close()

    def word_sum(self, name: str) -> int | None:
        """Return the word sum of a tensor that was preloaded, else None."""
        return self._sums.get(name)

    def __iter__(self) -> Iterator[tuple[Tensor, Data]]:
        with ThreadPoolExecutor(_THREADS, "rlfleet-read", unbind) as pool:
            ahead = _Ahead(self._places, pool, self._ahead_bytes)
            ahead.fill()
            while (taken := ahead.take()) is not None:
                place, data, digest = taken
                ahead.fill()
                self._count(place, digest)
                yield place.tensor, data
                # Free it before the next, which may be as large.
                del taken, place, data

    def installed(self) -> Installed:
        """Return count, bytes and digest of all tensors read; raises ChangedError."""
        for file in self._opened:
            file.demand_same()
        return Installed(
            tensors=self._tensors,
            nbytes=self._nbytes,
            digest=self._digest.hexdigest(),
            preloaded=self._preloaded,
        )

    def _places_in(self, stamp: FileStamp) -> list[_Place]:
        found = self._held.get(stamp.name)
        if found is not None and found.is_whole:
            return [_Place(one, found.held[one.name]) for one in found.tensors]
        file = CheckedFile(self._directory, stamp)
        self._opened.append(file)
        held = {} if found is None else found.held
        return [_Place(one, held.get(one.name, file)) for one in file.tensors]

    def _count(self, place: _Place, digest: bytes) -> None:
        self._digest.add(place.tensor, digest)
        self._tensors += 1
        self._nbytes += place.tensor.nbytes
        self._preloaded += place.tensor.nbytes - _read_bytes(place)

    def _close(self) -> None:
        self._places, self._held = [], {}
        while self._opened:
            self._opened.pop().close()


def _read_bytes(place: _Place) -> int:
    """Return the memory that reading a tensor takes."""
    return place.tensor.nbytes if isinstance(place.source, CheckedFile) else 0


def _begun(place: _Place, pool: Executor) -> Future[_ReadTensor]:
    if isinstance(place.source, CheckedFile):
        return pool.submit(_read, place.tensor, place.source.descriptor)
    done: Future[_ReadTensor] = Future()
    done.set_result(_ReadTensor(place.source.data, place.source.digest))
    return done


def _read(tensor: Tensor, descriptor: int) -> _ReadTensor:
    data, hashed = bytearray(tensor.nbytes), BLAKE3.new()
    view, done = memoryview(data), 0
    while done < len(data):
        part = view[done : done + _CHUNK]
        count = os.preadv(descriptor, [part], tensor.begin + done)
        if count == 0:
            raise ChangedError(f"the file with {tensor.name} became shorter after its check")
        hashed.update(part[:count])
        done += count
    return _ReadTensor(data, hashed.digest())
