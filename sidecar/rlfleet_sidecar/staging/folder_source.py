"""The files of an opened directory: copied by several threads, or read where they are.

It must stay true that the bytes belong to the files whose headers were checked. A volume is
read and copied, never mapped: a file that gets shorter, or a server that fails, would end the
process.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_sidecar.checkpoints.check import demand_same
from rlfleet_sidecar.checkpoints.folder import Folder, Location, Reading
from rlfleet_sidecar.checkpoints.headers import Headers, damage_named
from rlfleet_sidecar.checkpoints.manifest import Manifest, demand_hashes
from rlfleet_sidecar.staging.crew import Crew
from rlfleet_sidecar.staging.prepare_job import PrepareJob
from rlfleet_sidecar.staging.range_copy import RangeCopy
from rlfleet_sidecar.staging.source import Done


class FolderSource:
    """Copies checked files; a source (source.py)."""

    def __init__(self, folder: Folder, files: Sequence[FileStamp], threads: int) -> None:
        self._folder = folder
        self._files = files
        self._threads = threads

    @property
    def sizes(self) -> Mapping[str, int]:
        """The checked files, with their bytes."""
        return {stamp.name: stamp.size for stamp in self._files}

    def where(self, name: str) -> Location:
        """Return a file's place."""
        return self._folder.path / name

    def fill(self, draft: Path, done: Done) -> None:
        """Copy every file; raises SidecarError if one is not the checked one, or ends early.

        One thread a file: two that write to one file wait for its lock in the kernel.
        """
        files, lock = iter(self._files), threading.Lock()

        def work() -> None:
            copier = RangeCopy()
            while crew.error is None:
                with lock:
                    stamp = next(files, None)
                if stamp is None:
                    return
                with damage_named(self.where(stamp.name)):
                    self._copy(copier, stamp, draft, done)

        with Crew("rlfleet-copy") as crew:
            crew.start(min(self._threads, len(self._files)), work)

    def _copy(self, copier: RangeCopy, stamp: FileStamp, draft: Path, done: Done) -> None:
        with unchanged(self._folder, stamp) as reading, (draft / stamp.name).open("xb") as made:
            made.truncate(stamp.size)
            begin = 0
            while begin < stamp.size:
                count = copier.copy(reading, made.fileno(), begin, stamp.size - begin)
                done(stamp.name, begin, begin + count)
                begin += count


class InPlace:
    """Reads checked files where they are; a source that makes nothing."""

    def __init__(self, folder: Folder, files: Sequence[FileStamp]) -> None:
        self._folder = folder
        self._files = files

    @property
    def sizes(self) -> Mapping[str, int]:
        """The checked files, with their bytes."""
        return {stamp.name: stamp.size for stamp in self._files}

    def where(self, name: str) -> Location:
        """Return a file's place."""
        return self._folder.path / name

    def fill(self, _draft: Path, done: Done) -> None:
        """Report all bytes: they are there."""
        for stamp in self._files:
            done(stamp.name, 0, stamp.size)


@contextmanager
def unchanged(folder: Folder, stamp: FileStamp) -> Iterator[Reading]:
    """Open a file, which must be the checked one, and still be it at the end."""
    with folder.open(stamp.name) as reading:
        demand_same(folder, stamp, reading.stamp)
        yield reading
        demand_same(folder, stamp, reading.now())


class AbandonedError(Exception):
    """A file is closed without a look whether it has changed."""


def abandon(opened: ExitStack) -> None:
    """Close what was opened, without its checks."""
    error = AbandonedError()
    opened.__exit__(AbandonedError, error, None)


def demand_others(folder: Folder, content: Headers, manifest: Manifest, work: PrepareJob) -> None:
    """Raise unless the files that a manifest lists and the engine does not load are as listed."""
    loaded = {stamp.name for stamp in content.files}
    names = sorted(manifest.hashes.keys() - loaded)
    demand_hashes(folder, manifest, names, partial(work.advance, 0))
