"""The journal's file: one line per record, with its length and checksum. The last one counts.

    LENGTH CHECKSUM JSON

A record is appended, which takes a fraction of a rename's time. It must stay true that a reader
gets the last record; or the one before, if the last was cut while it was written, so that nothing
had begun with it; or none, if the last was damaged. An older record in the place of a
damaged one could name a version that the engine no longer holds.
"""

import errno
import os
import re
import zlib
from pathlib import Path

from rlfleet_sidecar.atomic_file import write_whole

MOST_BYTES = 1024 * 1024
"""A larger file is replaced by its last record."""
_HEAD = re.compile(rb"([0-9a-f]{8}) ([0-9a-f]{8}) ")
_HEAD_BYTES = 18
_HOLE = b"\0\0"
"""What a crash of the node leaves of blocks that were not on disk; no record has such bytes. What
precedes it counts, with the epoch that was synced: the engine is gone, and its boot is void."""


def line_of(record: str) -> bytes:
    """Return a record, which has no line break, as a line of the file."""
    body = record.encode()
    return b"%08x %08x %s\n" % (len(body), zlib.crc32(body), body)


def last_record(content: bytes) -> bytes | None:
    """Return the record that counts in a file's content; None without one.

    Earlier releases wrote one JSON object alone. They take this file for an invalid one, with
    which a worker proves nothing.
    """
    if content.startswith(b"{"):
        return content
    *lines, rest = content.split(b"\n")
    is_cut = not rest or _is_cut(rest)
    found = _record((lines or [b""])[-1] if is_cut else rest)
    if found is None and _HOLE in content:
        return last_record(content[: content.index(_HOLE)])
    return found


def _is_cut(line: bytes) -> bool:
    """Return whether the end of a line was not written."""
    head = _HEAD.match(line)
    if head is None:
        return len(line) < _HEAD_BYTES
    return len(line) - _HEAD_BYTES < int(head[1], 16)


def _record(line: bytes) -> bytes | None:
    """Return a line's record; None if a byte of it changed."""
    head, body = _HEAD.match(line), line[_HEAD_BYTES:]
    is_whole = (
        head is not None and int(head[1], 16) == len(body) and int(head[2], 16) == zlib.crc32(body)
    )
    return body if is_whole else None


class JournalLog:
    """Writes the file. After an error the next record replaces it, with whatever was cut."""

    def __init__(self, path: Path) -> None:
        """Replace the file at the first record: its end may be cut, or of another release."""
        self._path = path
        self._written: tuple[int, int] | None = None
        """Inode and size of the file after the last record; None: replace it."""

    def write(self, record: str, *, lasting: bool = False) -> None:
        """Write a record; ``lasting`` also syncs it, for a crash of the node. Raises OSError.

        A file that replaces another is synced as well: what was to last in that one is in this.
        """
        line = line_of(record)
        known, self._written = self._written, None
        if known is None or lasting or known[1] + len(line) > MOST_BYTES:
            self._replace(line)
            return
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            if _identity(os.fstat(file)) != known:
                # Another process has written it, or put another file in its place.
                self._replace(line)
                return
            if os.write(file, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        finally:
            os.close(file)
        self._written = known[0], known[1] + len(line)

    def _replace(self, line: bytes) -> None:
        write_whole(self._path, line.decode(), lasting=True)
        self._written = _identity(self._path.stat())


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_ino, found.st_size
