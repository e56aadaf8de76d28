"""A file of a checked version, opened for reading: it must be the checked one, then and later."""

import os
from contextlib import suppress
from pathlib import Path

from rlfleet_contract.engine.safetensors import LENGTH_BYTES, FileStamp, header_length, parse_header


class ChangedError(Exception):
    """A file changed since the sidecar checked it."""


class CheckedFile:
    """An opened file and its tensors; raises ChangedError if it is another file by now."""

    def __init__(self, directory: Path, stamp: FileStamp) -> None:
        self._stamp = stamp
        self.descriptor = os.open(directory / stamp.name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.demand_same()
            length = header_length(os.pread(self.descriptor, LENGTH_BYTES, 0), stamp.size)
            header = os.pread(self.descriptor, length, LENGTH_BYTES)
            self.tensors = parse_header(header, stamp.size)
        except BaseException:
            self.close()
            raise

    def demand_same(self) -> None:
        """Raise unless the file is as it was checked."""
        stamp, seen = self._stamp, os.fstat(self.descriptor)
        found = (seen.st_size, seen.st_mtime_ns, seen.st_ino)
        if found != (stamp.size, stamp.mtime_ns, stamp.inode):
            raise ChangedError(
                f"{stamp.name} changed after its check (got {seen.st_size} bytes, inode"
                f" {seen.st_ino}; checked {stamp.size} bytes, inode {stamp.inode}); write changes"
                " as a new version"
            )

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)


def unbind() -> None:
    """Let the calling thread use every core that the container may.

    vLLM binds a CPU worker and the threads that it starts to a few cores, which serve then.
    """
    with suppress(OSError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
