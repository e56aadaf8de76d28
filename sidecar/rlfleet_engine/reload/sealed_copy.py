"""Copies of a checkpoint's tensors in sealed memory, which the kernel lets no process change.

One rank copies a file into memory without a name in any file system and seals it; the others
open the same memory. So an engine has one copy, however many ranks it has. A rank must digest
the memory by itself after the seal: then what it digested is what it installs.
"""

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rlfleet_contract.engine.safetensors import Tensor
from rlfleet_engine.reload import mapping

_ALIGNMENT = 64
"""Of each tensor: vector instructions and torch expect it, files need not have it."""
_CHUNK = 16 * 1024 * 1024
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_LOCK = "lock"
_AGAIN_S = 0.02


class StoppedError(Exception):
    """The copy is no longer wanted."""


class ShortFileError(Exception):
    """A file became shorter after its check."""


class Spot(NamedTuple):
    """A tensor and its offset in the copy."""

    tensor: Tensor
    offset: int


class CopyLayout(NamedTuple):
    """Where a copy has each tensor."""

    spots: tuple[Spot, ...]
    nbytes: int


def laid_out(tensors: Iterable[Tensor]) -> CopyLayout:
    """Return the layout for a file's tensors, the same in every rank."""
    spots, end = [], 0
    for tensor in tensors:
        spots.append(Spot(tensor, end))
        end += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
    # Memory of no bytes cannot be mapped.
    return CopyLayout(tuple(spots), max(end, _ALIGNMENT))


def chunks(nbytes: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of the pieces of a tensor; between two of them a thread may stop."""
    for begin in range(0, nbytes, _CHUNK):
        yield begin, min(begin + _CHUNK, nbytes)


class SealedCopies:
    """The copies of one version's files, made by one rank and opened by all."""

    def __init__(self, folder: Path, key: str, wait: Callable[[float], bool]) -> None:
        self._folder = folder
        self._key = key
        self._wait = wait
        """Waits so many seconds; returns whether the copies are no longer wanted."""
        self._lock: int | None = None
        self._links: list[Path] = []
        self._made: list[int] = []

    def mapped(
        self, place: int, layout: CopyLayout, source: int, fits: Callable[[], None]
    ) -> memoryview:
        """Map the copy of a file, which this rank makes unless another one does.

        Args:
            place: The file's place in the version.
            layout: Where the copy has the tensors.
            source: The opened file.
            fits: Raises if there is too little memory; called by the rank that copies.

        """
        while True:
            found = self._opened(place, layout.nbytes)
            if found is not None:
                try:
                    return mapping.mapped(found, layout.nbytes)
                finally:
                    os.close(found)
            if self._leads():
                fits()
                made = self._copied(place, layout, source)
                self._made.append(made)
                self._publish(place, made)
                return mapping.mapped(made, layout.nbytes)
            if self._wait(_AGAIN_S):
                raise StoppedError

    def close(self) -> None:
        """Let go of the copies; memory is free once no rank has it mapped."""
        for link in self._links:
            link.unlink(missing_ok=True)
        for descriptor in self._made:
            os.close(descriptor)
        if self._lock is not None:
            os.close(self._lock)
        self._links, self._made, self._lock = [], [], None

    def _leads(self) -> bool:
        """Return whether this rank is the one that copies; the lock ends with its process."""
        if self._lock is not None:
            return True
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        self._lock = lock
        for left in self._folder.iterdir():
            if left.name != _LOCK:  # Of a process that was killed.
                left.unlink(missing_ok=True)
        return True

    def _name(self, place: int) -> str:
        return f"rlfleet-{self._key}-{place}"

    def _publish(self, place: int, descriptor: int) -> None:
        link = self._folder / self._name(place)
        self._links.append(link)
        link.symlink_to(f"/proc/{os.getpid()}/fd/{descriptor}")

    def _opened(self, place: int, nbytes: int) -> int | None:
        """Open another rank's copy; None unless it is sealed and of this version."""
        name = self._name(place)
        try:
            found = os.open(self._folder / name, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        with suppress(OSError):
            is_it = Path(f"/proc/self/fd/{found}").readlink().name.startswith(f"memfd:{name} ")
            is_sealed = fcntl.fcntl(found, fcntl.F_GET_SEALS) & _SEALS == _SEALS
            if is_it and is_sealed and os.fstat(found).st_size == nbytes:
                return found
        os.close(found)
        return None

    def _copied(self, place: int, layout: CopyLayout, source: int) -> int:
        made = os.memfd_create(self._name(place), os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(made, layout.nbytes)
            self._fill(made, layout.spots, source)
            fcntl.fcntl(made, fcntl.F_ADD_SEALS, _SEALS)
        except BaseException:
            os.close(made)
            raise
        return made

    def _fill(self, made: int, spots: Sequence[Spot], source: int) -> None:
        for tensor, offset in spots:
            os.lseek(made, offset, os.SEEK_SET)
            for begin, end in chunks(tensor.nbytes):
                if self._wait(0):
                    raise StoppedError
                _copy(made, source, tensor.begin + begin, end - begin)


def _copy(made: int, source: int, begin: int, nbytes: int) -> None:
    """Copy a part of a file inside the kernel, to where the copy's own offset is."""
    while nbytes:
        count = os.sendfile(made, source, begin, nbytes)
        if count == 0:
            raise ShortFileError(f"the file ended at byte {begin} ({nbytes} more expected)")
        begin, nbytes = begin + count, nbytes - count
