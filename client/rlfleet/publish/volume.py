"""Versions on a mounted volume: written under a hidden name, synced, renamed once complete."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rlfleet.publish import layout
from rlfleet.publish.errors import PublishError
from rlfleet.publish.pointer import demand_forward
from rlfleet.publish.store import Pieces

_LOCK = ".rlfleet-publish.lock"
_READABLE, _READABLE_FILE = 0o755, 0o644
"""Of directories and files, whatever the umask: an engine's user is another than the trainer's."""


def sync(path: Path) -> None:
    """Have a file or a directory outlive the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, content: bytes) -> None:
    """Write a small file, so that every reader finds the old or the new one."""
    draft = path.with_name(f".{path.name}.new")
    with draft.open("wb") as file:
        os.fchmod(file.fileno(), _READABLE_FILE)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync(path.parent)


@dataclass(frozen=True, slots=True)
class _Folder:
    path: Path

    def write(self, name: str, pieces: Pieces) -> None:
        with (self.path / name).open("xb") as file:
            os.fchmod(file.fileno(), _READABLE_FILE)
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())

    def commit(self, name: str, content: bytes) -> None:
        self.write(name, iter([content]))
        sync(self.path)
        final = self.path.with_name(_finished(self.path.name))
        if final.exists():
            raise PublishError(f"{final} exists already; let one trainer write there")
        self.path.rename(final)
        sync(final.parent)


class VolumeStore:
    """A directory; one publisher holds it."""

    def __init__(self, root: Path, *, pointed: bool) -> None:
        """Take the directory; raises PublishError if another process has it."""
        self._root = root
        self._versions = root / layout.UPDATES if pointed else root
        self._versions.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(root / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise PublishError(
                f"another process publishes to {root}; end it, or use another directory"
            ) from error
        except OSError as error:
            os.close(self._lock)
            raise PublishError(
                f"cannot lock {root / _LOCK}: {error.strerror}; mount the file system with locks"
                " (flock), or use another"
            ) from error

    def numbers(self) -> set[int]:
        """Return each number that is in use; drafts of a crashed trainer count too."""
        found = (layout.version_of(_finished(path.name)) for path in self._versions.iterdir())
        return {number for number in found if number is not None}

    def index_of(self, version: int) -> bytes | None:
        """Return the index of a version."""
        try:
            return (self._versions / layout.name_of(version) / layout.INDEX).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    @contextmanager
    def draft(self, version: int) -> Iterator[_Folder]:
        """Begin a version; what a crashed trainer left of others goes."""
        for left in self._versions.glob(".weight_v*.partial"):
            shutil.rmtree(left)
        path = self._versions / _unfinished(layout.name_of(version))
        path.mkdir()
        path.chmod(_READABLE)
        try:
            yield _Folder(path)
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def point(self, run: str, version: int) -> None:
        """Replace the pointer."""
        path = self._root / layout.POINTER
        found = path.read_text() if path.exists() else ""
        demand_forward(found, run, version)
        write_whole(path, layout.pointer_to(run, version).encode())

    def close(self) -> None:
        """Let another process publish here."""
        os.close(self._lock)


def _unfinished(name: str) -> str:
    return f".{name}.partial"


def _finished(name: str) -> str:
    return name.removeprefix(".").removesuffix(".partial")
