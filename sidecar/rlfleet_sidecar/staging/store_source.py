"""The objects of a version in a store: read in ranges by several threads.

It must stay true that each byte is of the state that was listed: every range demands its ETag.
More threads than CPUs, because they wait for the network; the ranges that are under way need
some MiB each, whatever the version's size.
"""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_sidecar.checkpoints.check import demand_same
from rlfleet_sidecar.staging.crew import Crew
from rlfleet_sidecar.staging.range_copy import write_at
from rlfleet_sidecar.staging.source import Done
from rlfleet_sidecar.stores.objects import StoreFolder, StoreObject
from rlfleet_sidecar.stores.url import StoreUrl

RANGE = 32 * 1024 * 1024
"""What one request asks for."""
_PIECE = 1024 * 1024
_THREADS = 8
_Range = tuple[StoreObject, Path, int, int]


class StoreSource:
    """Downloads checked objects; a source (source.py)."""

    def __init__(self, folder: StoreFolder, files: Sequence[FileStamp]) -> None:
        self._folder = folder
        self._files = files

    @property
    def sizes(self) -> Mapping[str, int]:
        """The checked objects, with their bytes."""
        return {stamp.name: stamp.size for stamp in self._files}

    def where(self, name: str) -> StoreUrl:
        """Return an object's URL."""
        return self._folder.path / name

    def fill(self, draft: Path, done: Done) -> None:
        """Download every object; raises SidecarError if one is not the checked one."""
        ranges, lock = self._ranges(draft), threading.Lock()
        with Crew("rlfleet-store") as crew:
            crew.start(_THREADS, partial(self._work, crew, ranges, lock, done))

    def _ranges(self, draft: Path) -> Iterator[_Range]:
        for stamp in self._files:
            found = self._folder.object_of(stamp.name)
            demand_same(self._folder, stamp, found.stamp)
            target = draft / stamp.name
            with target.open("xb") as made:
                made.truncate(stamp.size)
            for begin in range(0, stamp.size, RANGE):
                yield found, target, begin, min(begin + RANGE, stamp.size)

    def _work(self, crew: Crew, ranges: Iterator[_Range], lock: threading.Lock, done: Done) -> None:
        while crew.error is None:
            with lock:
                taken = next(ranges, None)
            if taken is None:
                return
            _download(*taken, done)


def _download(source: StoreObject, path: Path, begin: int, end: int, done: Done) -> None:
    target = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        for piece in source.pieces(begin, end, _PIECE):
            view = memoryview(piece)
            write_at(target, view, begin)
            done(path.name, begin, begin + len(view))
            begin += len(view)
    finally:
        os.close(target)
