"""Reads a delta's payload file where each request takes a round trip, as in an object store.

Small ranges that lie close together are read in one request, several requests at once. It must
stay true that at most a little more is read than was asked for: a delta's bytes are few, which is
what it is for.
"""

import threading
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import partial

from rlfleet_sidecar.checkpoints.folder import Reading
from rlfleet_sidecar.staging.crew import Crew

GAP = 32 * 1024
"""Bytes that are read in vain rather than begin another request."""
MOST = 4 * 1024 * 1024
"""What one request asks for at most."""
HELD = 1024 * 1024
"""What stays in memory of one file."""
_THREADS = 8
Range = tuple[int, int]


def joined(ranges: Iterable[Range], gap: int = GAP, most: int = MOST) -> list[Range]:
    """Return ranges that contain all of these, each at most so long unless one of these is."""
    found: list[Range] = []
    for begin, end in sorted(ranges):
        if found and begin - found[-1][1] <= gap and end - found[-1][0] <= most:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


class FarFile:
    """Parts of one file, read ahead."""

    def __init__(self, file: Reading) -> None:
        self._file = file
        self._parts: list[tuple[int, bytes]] = []

    def fetch(self, ranges: Sequence[Range]) -> None:
        """Read these ranges; raises what the file raises."""
        due, lock = iter(joined(ranges)), threading.Lock()
        found: list[tuple[int, bytes]] = []

        def work(crew: Crew) -> None:
            while crew.error is None:
                with lock:
                    taken = next(due, None)
                if taken is None:
                    return
                found.append((taken[0], self._file.read(taken[1] - taken[0], taken[0])))

        with Crew("rlfleet-ahead") as crew:
            crew.start(_THREADS, partial(work, crew))
        self._parts = sorted(found)

    def forget(self) -> None:
        """Drop what was read, unless it is little."""
        if sum(len(data) for _, data in self._parts) > HELD:
            self._parts = []

    def read(self, length: int, offset: int) -> bytes:
        """Return exactly this range; raises BadHeaderError if the file ends before."""
        place = bisect_right(self._parts, offset, key=lambda part: part[0]) - 1
        if place >= 0:
            begin, data = self._parts[place]
            if offset + length <= begin + len(data):
                return data[offset - begin : offset - begin + length]
        return self._file.read(length, offset)
