"""Copies ranges of an opened file into another, inside the kernel where it can.

copy_file_range shares blocks where the file system has reflinks, and copies elsewhere. Between
two kinds of file systems it is often refused; then sendfile copies. What is not a file of a
file system, or what both refuse, goes through a buffer.
"""

import errno
import os
from collections.abc import Callable

from rlfleet_sidecar.checkpoints.folder import Reading
from rlfleet_sidecar.checkpoints.safe_paths import OpenFile

STEP = 8 * 1024 * 1024
"""What one call copies at most: the processor's cache still holds much of it for the digest."""
_UNSUPPORTED = frozenset(
    {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EPERM}
)
"""EPERM: some runtimes answer unknown calls with it."""
_Way = Callable[[int, int, int, int], int]


def _by_range(source: int, target: int, place: int, nbytes: int) -> int:
    return os.copy_file_range(source, target, nbytes, place, place)


def _by_sendfile(source: int, target: int, place: int, nbytes: int) -> int:
    os.lseek(target, place, os.SEEK_SET)
    return os.sendfile(target, source, place, nbytes)


WAYS: tuple[_Way, ...] = (_by_range, _by_sendfile)


class RangeCopy:
    """Copies ranges, by the first way that works. Used by one thread."""

    def __init__(self, ways: tuple[_Way, ...] = WAYS) -> None:
        self._ways = ways
        self._buffer: memoryview | None = None

    def copy(self, source: Reading, target: int, place: int, nbytes: int) -> int:
        """Copy some of the bytes to the same place; returns how many.

        Raises BadHeaderError if the source ends before. The position of ``target`` changes:
        each thread needs a descriptor of its own.
        """
        while self._ways and isinstance(source, OpenFile):
            try:
                count = self._ways[0](source.descriptor, target, place, min(nbytes, STEP))
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
            else:
                # Some file systems answer 0 where they cannot copy; only a read is certain.
                if count:
                    return count
            self._ways = self._ways[1:]
        return self._by_buffer(source, target, place, nbytes)

    def _by_buffer(self, source: Reading, target: int, place: int, nbytes: int) -> int:
        self._buffer = self._buffer or memoryview(bytearray(STEP))
        nbytes = min(nbytes, STEP)
        piece = self._buffer[:nbytes]
        source.fill(piece, place)
        write_at(target, piece, place)
        return nbytes


def write_at(target: int, piece: memoryview, place: int) -> None:
    """Write all bytes to this place of an opened file; the system may take them in parts."""
    done = 0
    while done < len(piece):
        done += os.pwrite(target, piece[done:], place + done)
