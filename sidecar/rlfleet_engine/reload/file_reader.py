"""Reads the tensors of checked files and digests exactly the bytes that it yields.

The digested bytes must be the installed ones. So tensors are read into memory once and never
mapped: a file that changes later changes neither. A tensor above the bound is read only when
vLLM takes it: fused experts have 10 to 20 GB each, and vLLM keeps one while it takes the next.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from rlfleet_contract.engine.rank_report import Installed
from rlfleet_contract.engine.safetensors import (
    BLAKE3,
    LENGTH_BYTES,
    Digest,
    FileStamp,
    Tensor,
    header_length,
    parse_header,
)

_AHEAD = 4
"""The number of tensors to read and digest ahead."""
_AHEAD_BYTES = 1024 * 1024 * 1024
"""Their bytes together; every rank reads by itself, and all share the node's memory."""
_THREADS = 2


class ChangedError(Exception):
    """A file changed since the sidecar checked it."""


class _Place(NamedTuple):
    tensor: Tensor
    descriptor: int


class _Ahead:
    """Reads tensors in order in a few threads, as far ahead as the bounds allow."""

    def __init__(self, places: Iterable[_Place], pool: Executor, limit: int) -> None:
        self._left = deque(places)
        self._pool = pool
        self._limit = limit
        self._read: deque[tuple[Tensor, Future[tuple[bytearray, bytes]]]] = deque()
        self._nbytes = 0

    def fill(self) -> None:
        """Start more reads; a tensor above the limit waits until it is taken."""
        while self._left and len(self._read) < _AHEAD and self._fits(self._left[0].tensor):
            self._submit()

    def take(self) -> tuple[Tensor, bytearray, bytes] | None:
        """Return the next tensor with its hash; None at the end."""
        if not self._read:
            if not self._left:
                return None
            self._submit()
        tensor, future = self._read.popleft()
        self._nbytes -= tensor.nbytes
        return tensor, *future.result()

    def _fits(self, tensor: Tensor) -> bool:
        return self._nbytes + tensor.nbytes <= self._limit

    def _submit(self) -> None:
        place = self._left.popleft()
        self._nbytes += place.tensor.nbytes
        self._read.append((place.tensor, self._pool.submit(_read, place)))


class FileReader:
    """Yields the tensors of one checkpoint once, in the order of their names."""

    def __init__(
        self, directory: str, files: Sequence[FileStamp], ahead_bytes: int = _AHEAD_BYTES
    ) -> None:
        self._directory = Path(directory)
        self._files = files
        self._ahead_bytes = ahead_bytes
        self._opened: list[int] = []
        self._places: list[_Place] = []
        self._digest = Digest()
        self._tensors = 0
        self._nbytes = 0

    def __enter__(self) -> Self:
        try:
            for stamp in self._files:
                self._open(stamp)
        except BaseException:
            self._close()
            raise
        self._places.sort(key=lambda place: place.tensor.name)
        return self

    def __exit__(self, *_error: object) -> None:
        self._close()

    def __iter__(self) -> Iterator[tuple[Tensor, bytearray]]:
        with ThreadPoolExecutor(_THREADS, "rlfleet-read", _unbind) as pool:
            ahead = _Ahead(self._places, pool, self._ahead_bytes)
            ahead.fill()
            while (taken := ahead.take()) is not None:
                tensor, data, digest = taken
                ahead.fill()
                self._count(tensor, digest)
                yield tensor, data
                # Free it before the next, which may be as large.
                del taken, data

    def installed(self) -> Installed:
        """Return count, bytes and digest of all tensors read; raises ChangedError."""
        for stamp, descriptor in zip(self._files, self._opened, strict=True):
            _compare(stamp, descriptor)
        return Installed(
            tensors=self._tensors, nbytes=self._nbytes, digest=self._digest.hexdigest()
        )

    def _open(self, stamp: FileStamp) -> None:
        descriptor = os.open(self._directory / stamp.name, os.O_RDONLY | os.O_CLOEXEC)
        self._opened.append(descriptor)
        _compare(stamp, descriptor)
        length = header_length(os.pread(descriptor, LENGTH_BYTES, 0), stamp.size)
        header = os.pread(descriptor, length, LENGTH_BYTES)
        for tensor in parse_header(header, stamp.size):
            self._places.append(_Place(tensor, descriptor))

    def _count(self, tensor: Tensor, digest: bytes) -> None:
        self._digest.add(tensor, digest)
        self._tensors += 1
        self._nbytes += tensor.nbytes

    def _close(self) -> None:
        while self._opened:
            os.close(self._opened.pop())


def _unbind() -> None:
    """Let a reading thread use every core that the container may.

    vLLM binds a CPU worker and the threads that it starts to a few cores, which serve then.
    """
    with suppress(OSError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))


def _compare(stamp: FileStamp, descriptor: int) -> None:
    seen = os.fstat(descriptor)
    if (seen.st_size, seen.st_mtime_ns, seen.st_ino) != (stamp.size, stamp.mtime_ns, stamp.inode):
        raise ChangedError(
            f"{stamp.name} changed after its check (got {seen.st_size} bytes, inode {seen.st_ino};"
            f" checked {stamp.size} bytes, inode {stamp.inode}); write changes as a new version"
        )


def _read(place: _Place) -> tuple[bytearray, bytes]:
    data = bytearray(place.tensor.nbytes)
    view, done = memoryview(data), 0
    while done < len(data):
        count = os.preadv(place.descriptor, [view[done:]], place.tensor.begin + done)
        if count == 0:
            raise ChangedError(f"the file with {place.tensor.name} became shorter after its check")
        done += count
    return data, BLAKE3.new(data).digest()
