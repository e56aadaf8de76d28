"""Opens directories and files of checkpoints, only beneath one root.

A version names a directory, never a path. It is opened component by component from a
descriptor of the root. Neither a component nor a file may be a symbolic link: then no writer
of the volume can lead the engine elsewhere. The root comes from the pod's specification and
may be a link or a mount. So does the base model's directory, in which links are followed:
Hub caches consist of them.
"""

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rlfleet_contract.engine.safetensors import BadHeaderError, FileStamp
from rlfleet_contract.paths import BASE_VERSION, VERSION_PATTERN
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.settings import PLACEHOLDER

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_MAX_ENTRIES = 10_000
_NAMED_VERSIONS = 5


@dataclass(frozen=True, slots=True)
class OpenFile:
    """One opened file of a folder."""

    descriptor: int
    stamp: FileStamp

    @property
    def request_bytes(self) -> int:
        """Small reads cost little."""
        return 0

    def now(self) -> FileStamp:
        """Return its stamp as it is now."""
        return stamp_of(self.stamp.name, os.fstat(self.descriptor))

    def read(self, length: int, offset: int) -> bytes:
        """Return exactly this range; raises BadHeaderError if the file ends before."""
        data = bytearray(length)
        self.fill(memoryview(data), offset)
        return bytes(data)

    def fill(self, view: memoryview, offset: int) -> None:
        """Read exactly as many bytes as fit; raises BadHeaderError if the file ends before."""
        filled = 0
        while filled < len(view):
            count = os.preadv(self.descriptor, [view[filled:]], offset + filled)
            if count == 0:
                raise BadHeaderError(
                    f"file ends after {offset + filled} bytes (expected {offset + len(view)})"
                )
            filled += count


@dataclass(frozen=True, slots=True)
class OpenFolder:
    """An opened directory."""

    path: Path
    descriptor: int
    follow: bool
    """Whether links in it are followed; only for the base model."""
    reader_uid: int | None = None
    """The engine's user, which must be able to read its files too."""

    def all_names(self, limit: int | None = None) -> list[str]:
        """Return its sorted names, however many, or some of them."""
        with os.scandir(self.descriptor) as entries:
            return sorted(entry.name for entry in islice(entries, limit))

    def names(self) -> list[str]:
        """Return its sorted names; raises if no checkpoint has so many, or such names."""
        names = self.all_names(_MAX_ENTRIES + 1)
        if foreign := [name for name in names if not _is_text(name)]:
            raise SidecarError(
                Code.CHECKPOINT_INVALID,
                f"{self.path / foreign[0]} has a name that is not UTF-8; rename or delete it",
            )
        if len(names) > _MAX_ENTRIES:
            raise SidecarError(
                Code.CHECKPOINT_INVALID,
                f"{self.path} has too many files for a checkpoint (at most {_MAX_ENTRIES})",
            )
        return names

    def modified_ns(self, name: str) -> int | None:
        """Return the time of a file's last write; None if it does not exist."""
        stamp = self.stamp(name)
        return None if stamp is None else stamp.mtime_ns

    def stamp(self, name: str) -> FileStamp | None:
        """Return the stamp of a file without opening it; None if it does not exist."""
        try:
            seen = os.stat(name, dir_fd=self.descriptor, follow_symlinks=self.follow)
        except FileNotFoundError:
            return None
        return stamp_of(name, seen)

    def stamps(self) -> tuple[FileStamp, ...]:
        """Return the stamps of all its files."""
        found = map(self.stamp, self.names())
        return tuple(stamp for stamp in found if stamp is not None)

    @contextmanager
    def open(self, name: str) -> Iterator[OpenFile]:
        """Open one regular file; raises SidecarError for a link or without permission."""
        path = self.path / name
        flags = _FILE if self.follow else _FILE | os.O_NOFOLLOW
        try:
            descriptor = os.open(name, flags, dir_fd=self.descriptor)
        except OSError as error:
            raise self._refusal(path, error) from error
        try:
            seen = os.fstat(descriptor)
            if not stat.S_ISREG(seen.st_mode):
                raise SidecarError(Code.PATH_REFUSED, f"{path} is not a regular file; replace it")
            if self.reader_uid is not None and not _may_read(seen, self.reader_uid):
                raise _unreadable(path, seen, self.reader_uid)
            yield OpenFile(descriptor, stamp_of(name, seen))
        finally:
            os.close(descriptor)

    def create(self, name: str) -> bool:
        """Create an empty file; return False if it exists, or the directory was deleted."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            os.close(os.open(name, flags, 0o644, dir_fd=self.descriptor))
        except (FileExistsError, FileNotFoundError):
            return False
        except OSError as error:
            raise _unwritable(self.path / name, error) from error
        return True

    def text(self, name: str, most: int) -> bytes | None:
        """Return so many bytes of a file at most; None if it is absent, a link or a directory."""
        if self.stamp(name) is None:
            return None
        try:
            with self.open(name) as file:
                return file.read(min(file.stamp.size, most), 0)
        except BadHeaderError as error:
            why = f"{self.path / name}: {error}"
            raise SidecarError(Code.CHECKPOINT_UNREADABLE, why) from error
        except SidecarError as error:
            if error.code is Code.PATH_REFUSED:
                return None
            raise

    def _refusal(self, path: Path, error: OSError) -> SidecarError:
        if error.errno == errno.ELOOP:
            return _link(path)
        if error.errno in {errno.EACCES, errno.EPERM}:
            seen = os.stat(path.name, dir_fd=self.descriptor)
            return _unreadable(path, seen, os.geteuid())
        if error.errno == errno.ENOENT:
            return SidecarError(Code.CHECKPOINT_INVALID, f"{path} does not exist; write it")
        return _io_error(path, error)


def _is_text(name: str) -> bool:
    """Return whether a file's name is UTF-8; Python replaces other bytes by surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def stamp_of(name: str, seen: os.stat_result) -> FileStamp:
    """Return the stamp for a result of ``os.stat``."""
    return FileStamp(
        name=name,
        size=seen.st_size,
        mtime_ns=seen.st_mtime_ns,
        inode=seen.st_ino,
        device=seen.st_dev,
    )


@contextmanager
def open_model(path: Path) -> Iterator[OpenFolder]:
    """Open the base model's directory."""
    descriptor = _opened(path, "model path")
    try:
        yield OpenFolder(path, descriptor, follow=True)
    finally:
        os.close(descriptor)


@contextmanager
def open_copy(path: Path) -> Iterator[OpenFolder]:
    """Open the directory of a staged version."""
    descriptor = os.open(path, _DIRECTORY | os.O_NOFOLLOW)
    try:
        yield OpenFolder(path, descriptor, follow=False)
    finally:
        os.close(descriptor)


def _opened(path: Path, what: str) -> int:
    """Open a directory of the pod's specification, through links."""
    try:
        return os.open(path, _DIRECTORY)
    except FileNotFoundError as error:
        raise SidecarError(
            Code.VERSION_NOT_FOUND,
            f"{what} {path} does not exist; check that its volume is mounted",
        ) from error
    except OSError as error:
        raise _io_error(path, error) from error


@dataclass(frozen=True, slots=True)
class Layout:
    """The location of versions: a root and the components beneath it."""

    root: Path
    parts: tuple[str, ...]

    @classmethod
    def of(cls, template: str) -> "Layout":
        """Split a template such as /weights/{version}/weight before its first placeholder."""
        parts = Path(template).parts
        first = next(index for index, part in enumerate(parts) if PLACEHOLDER in part)
        return cls(Path(*parts[:first]), parts[first:])

    def folder_of(self, version: str) -> Path:
        """Return the directory of a version."""
        return self.root.joinpath(*(part.replace(PLACEHOLDER, version) for part in self.parts))

    def version_of(self, directory: str) -> str:
        """Return the version of a directory, from its name; raises if it has none."""
        path = Path(directory)
        before, _, after = self.parts[0].partition(PLACEHOLDER)
        name = "".join(path.parts[len(self.root.parts) :][:1])
        version = name.removeprefix(before).removesuffix(after)
        is_name = re.fullmatch(VERSION_PATTERN, version) is not None and version != BASE_VERSION
        if not is_name or self.folder_of(version) != path:
            raise SidecarError(
                Code.PATH_REFUSED,
                f"{directory:.300} is not the directory of a version (expected"
                f" {self.folder_of(PLACEHOLDER)}, not {BASE_VERSION})",
            )
        return version

    @contextmanager
    def open_root(self, *, above: bool = False) -> Iterator[OpenFolder]:
        """Open the root, or the directory that holds it."""
        path = self.root.parent if above else self.root
        descriptor = _opened(path, "weights root")
        try:
            yield OpenFolder(path, descriptor, follow=False)
        finally:
            os.close(descriptor)

    @contextmanager
    def open(self, version: str, reader_uid: int | None) -> Iterator[tuple[OpenFolder, ...]]:
        """Open the version's directories from the outermost to the one with the weights."""
        opened: list[OpenFolder] = []
        try:
            folder = OpenFolder(self.root, _opened(self.root, "weights root"), follow=False)
            opened.append(folder)
            for part in self.parts:
                folder = self._open_part(folder, part.replace(PLACEHOLDER, version), reader_uid)
                opened.append(folder)
            yield tuple(opened[1:])
        finally:
            for folder in opened:
                os.close(folder.descriptor)

    def _open_part(self, parent: OpenFolder, name: str, reader_uid: int | None) -> OpenFolder:
        path = parent.path / name
        try:
            flags = _DIRECTORY | os.O_NOFOLLOW
            descriptor = os.open(name, flags, dir_fd=parent.descriptor)
        except OSError as error:
            raise self._why_not(parent, path, error) from error
        return OpenFolder(path, descriptor, follow=False, reader_uid=reader_uid)

    def _why_not(self, parent: OpenFolder, path: Path, error: OSError) -> SidecarError:
        if error.errno == errno.ENOENT:
            return SidecarError(
                Code.VERSION_NOT_FOUND, f"{path} does not exist; {self._known(parent)}"
            )
        if error.errno in {errno.ENOTDIR, errno.ELOOP}:
            seen = os.stat(path.name, dir_fd=parent.descriptor, follow_symlinks=False)
            if stat.S_ISLNK(seen.st_mode):
                return _link(path)
            return SidecarError(Code.CHECKPOINT_INVALID, f"{path} is not a directory")
        return _io_error(path, error)

    def _known(self, parent: OpenFolder) -> str:
        """Return what is there instead; a root of many versions is not read to its end."""
        try:
            found = parent.all_names(_MAX_ENTRIES)
        except OSError as error:
            return f"failed to list {parent.path}: {os.strerror(error.errno or 0)}"
        if parent.path != self.root:
            names = ", ".join(found[:_NAMED_VERSIONS])
            return f"{parent.path} contains {names or 'nothing'}"
        before, _, after = self.parts[0].partition(PLACEHOLDER)
        versions = [
            name.removeprefix(before).removesuffix(after)
            for name in found
            if name.startswith(before) and name.endswith(after) and not name.startswith(".")
        ]
        if not versions:
            return f"{self.root} contains no version"
        which = "some" if len(found) == _MAX_ENTRIES else "the last"
        return f"{which} versions are {', '.join(versions[-_NAMED_VERSIONS:])}"


def _may_read(seen: os.stat_result, uid: int) -> bool:
    """Return whether a user in the sidecar's groups may read the file."""
    if uid == 0:
        return True
    if seen.st_uid == uid:
        return bool(seen.st_mode & stat.S_IRUSR)
    if seen.st_gid in {os.getegid(), *os.getgroups()} and seen.st_gid != 0:
        return bool(seen.st_mode & stat.S_IRGRP)
    return bool(seen.st_mode & stat.S_IROTH)


def _unreadable(path: Path, seen: os.stat_result, uid: int) -> SidecarError:
    # No umask helps: safetensors 0.8 writes mode 0600 whatever it is.
    return SidecarError(
        Code.CHECKPOINT_UNREADABLE,
        f"{path} (uid {seen.st_uid}, mode {stat.S_IMODE(seen.st_mode):04o}) is not readable by uid"
        f" {uid} of the engine; run chmod a+r before the marker, or run workers and trainer as one"
        " user (spec.template.spec.securityContext)",
    )


def _unwritable(path: Path, error: OSError) -> SidecarError:
    if error.errno in {errno.EACCES, errno.EPERM}:
        advice = (
            f"let the trainer's umask be 002, or run workers (uid {os.geteuid()}) and trainer as"
            " one user (spec.template.spec.securityContext)"
        )
    elif error.errno == errno.EROFS:
        advice = "remove readOnly from its volume"
    else:
        advice = "check its volume"
    return SidecarError(
        Code.CHECKPOINT_UNREADABLE,
        f"failed to write {path}: {os.strerror(error.errno or 0)}; {advice}",
    )


def _link(path: Path) -> SidecarError:
    return SidecarError(
        Code.PATH_REFUSED,
        f"{path} is a symbolic link; write a directory of regular files beneath the weights root",
    )


def _io_error(path: Path, error: OSError) -> SidecarError:
    return SidecarError(
        Code.CHECKPOINT_UNREADABLE,
        f"failed to open {path}: {os.strerror(error.errno or 0)}; check its volume",
    )
