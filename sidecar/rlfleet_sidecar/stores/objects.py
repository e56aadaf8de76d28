"""A version's objects, as the checks of a checkpoint read them (checkpoints/folder.py).

It must stay true that all bytes that are read of an object are those of one state of it: each
read demands the ETag that was listed, and compares what came.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, TypeVar

from rlfleet_contract.engine.safetensors import BadHeaderError, FileStamp
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.stores.client import Opened
from rlfleet_sidecar.stores.failures import BrokenReplyError, ReplacedError, named
from rlfleet_sidecar.stores.url import StoreUrl

_MAX_OBJECTS = 10_000
_HEAD_BYTES = 256 * 1024
"""Read at once at an object's beginning: most headers and configurations fit."""
_REQUEST_BYTES = 1024 * 1024
_WEAK = "W/"
_PAUSES_S = (0.2, 1.0)
_Listed = TypeVar("_Listed")


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """One object as the store described it."""

    stamp: FileStamp
    tag: str
    """Its ETag."""

    @classmethod
    def of(cls, name: str, place: StoreUrl, meta: Any) -> "ObjectEntry":
        """Return the entry of obstore's description; raises without a strong ETag."""
        tag = meta["e_tag"] or ""
        if not tag or tag.startswith(_WEAK):
            raise SidecarError(
                Code.CHECKPOINT_INVALID,
                f"{place} has no strong ETag, which shows a rewrite; serve it by another server",
            )
        return cls(_stamp(name, meta["size"], meta["last_modified"], tag), tag)


def repeated(listed: Callable[[], _Listed]) -> _Listed:
    """List, again after a pause if the reply broke."""
    for pause_s in _PAUSES_S:
        try:
            return listed()
        except BrokenReplyError:
            time.sleep(pause_s * (0.5 + random.random()))  # noqa: S311 - no secret
    return listed()


def _stamp(name: str, size: int, modified: datetime, tag: str) -> FileStamp:
    # A listing has fractions of a second that an object's own header lacks. The ETag takes the
    # place of the inode: what else identifies a file of this name, size and time.
    return FileStamp(
        name=name,
        size=size,
        mtime_ns=int(modified.timestamp()) * 10**9,
        inode=int.from_bytes(sha256(tag.encode()).digest()[:7]),
    )


@dataclass(slots=True)
class StoreObject:
    """One object, read only as it was described."""

    opened: Opened
    place: StoreUrl
    entry: ObjectEntry
    _head: bytes = b""

    @property
    def stamp(self) -> FileStamp:
        """Its stamp when it was opened."""
        return self.entry.stamp

    @property
    def request_bytes(self) -> int:
        """Each read is a request."""
        return _REQUEST_BYTES

    def now(self) -> FileStamp:
        """Return its stamp as it is now."""
        with self._unchanged(), named(self.place):
            meta = self.opened.library.head(self.opened.store, self.place.key)
        return ObjectEntry.of(self.stamp.name, self.place, meta).stamp

    def read(self, length: int, offset: int) -> bytes:
        """Return exactly this range; raises BadHeaderError if the object ends before."""
        end = offset + length
        if end > self.stamp.size:
            raise BadHeaderError(f"file ends after {self.stamp.size} bytes (expected {end})")
        if not self._head and offset + length <= _HEAD_BYTES:
            self._head = b"".join(map(bytes, self.pieces(0, min(_HEAD_BYTES, self.stamp.size))))
        if end <= len(self._head):
            return self._head[offset:end]
        return b"".join(map(bytes, self.pieces(offset, end)))

    def fill(self, view: memoryview, offset: int) -> None:
        """Read exactly as many bytes as fit; raises BadHeaderError if the object ends before."""
        end = offset + len(view)
        if end > self.stamp.size:
            raise BadHeaderError(f"file ends after {self.stamp.size} bytes (expected {end})")
        filled = 0
        for piece in self.pieces(offset, end):
            view[filled : filled + len(piece)] = piece
            filled += len(piece)

    def pieces(self, begin: int, end: int, piece_bytes: int = 1 << 20) -> Iterator[Any]:
        """Yield exactly this range, in pieces; raises if the object is another by now.

        obstore repeats what fails for a time, and continues a broken reply where it ended.
        """
        if begin == end:
            return
        options = {"range": (begin, end), "if_match": self.entry.tag}
        with self._unchanged(), named(self.place):
            found = self.opened.library.get(self.opened.store, self.place.key, options=options)
            if ObjectEntry.of(self.stamp.name, self.place, found.meta) != self.entry:
                raise ReplacedError
            at = begin
            for piece in found.stream(min_chunk_size=piece_bytes):
                at += len(piece)
                if at > end:
                    break
                yield piece
            if at != end:
                raise SidecarError(
                    Code.CHECKPOINT_UNREADABLE,
                    f"failed to read {self.place}: got {at - begin} of {end - begin} bytes; check"
                    " the store",
                )

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        try:
            yield
        except ReplacedError:
            raise SidecarError(
                Code.CHECKPOINT_INVALID,
                f"{self.place} was written again after its check; keep a version's objects"
                " unchanged, and prepare it again",
            ) from None


@dataclass(slots=True)
class StoreFolder:
    """The objects of one version, listed when they are first asked for."""

    opened: Opened
    path: StoreUrl
    is_listed: bool = True
    """Whether the store lists; of an outer place only single names are asked for."""
    follow: bool = False
    """Whether it may hold more than its index lists; never in a store."""
    _entries: dict[str, ObjectEntry] | None = field(default=None)
    _folders: set[str] = field(default_factory=set)
    """Names with objects below them, which a volume lists as directories."""

    def names(self) -> list[str]:
        """Return its sorted names; raises if there are more than any checkpoint has."""
        return sorted(self.entries().keys() | self._folders)

    def stamps(self) -> tuple[FileStamp, ...]:
        """Return the stamps of all its objects."""
        return tuple(entry.stamp for _, entry in sorted(self.entries().items()))

    def modified_ns(self, name: str) -> int | None:
        """Return the time of an object's last write; None if it does not exist."""
        stamp = self.stamp(name)
        return None if stamp is None else stamp.mtime_ns

    def stamp(self, name: str) -> FileStamp | None:
        """Return the stamp of an object; None if it does not exist."""
        found = self.entries().get(name) if self.is_listed else self.described(name)
        return None if found is None else found.stamp

    @contextmanager
    def open(self, name: str) -> Iterator[StoreObject]:
        """Open one object; raises SidecarError if it is absent."""
        yield self.object_of(name)

    def object_of(self, name: str) -> StoreObject:
        """Return one object; raises SidecarError if it is absent."""
        found = self.entries().get(name) if self.is_listed else self.described(name)
        if found is None:
            raise SidecarError(
                Code.CHECKPOINT_INVALID, f"{self.path / name} does not exist; write it"
            )
        return StoreObject(self.opened, self.path / name, found)

    def described(self, name: str) -> ObjectEntry | None:
        """Ask for one object alone."""
        place = self.path / name
        try:
            with named(place):
                meta = self.opened.library.head(self.opened.store, place.key)
        except SidecarError as error:
            if error.code is Code.CHECKPOINT_INVALID:
                return None
            raise
        return ObjectEntry.of(name, place, meta)

    def entries(self) -> dict[str, ObjectEntry]:
        """Return its objects by name, asked for once."""
        if self._entries is None:
            self._entries = repeated(self._listed)
        return self._entries

    def _listed(self) -> dict[str, ObjectEntry]:
        prefix = f"{self.path.key}/"
        found: dict[str, ObjectEntry] = {}
        with named(self.path):
            pages = self.opened.library.list(self.opened.store, prefix=prefix, chunk_size=1000)
            for page in pages:
                for meta in page:
                    name, _, below = meta["path"].removeprefix(prefix).partition("/")
                    if below:
                        self._folders.add(name)
                    # A console's object for a folder, "step-1/", has its slash cut by obstore.
                    elif meta["path"] != self.path.key:
                        found[name] = ObjectEntry.of(name, self.path / name, meta)
                self._demand_few(found)
        return found

    def _demand_few(self, found: dict[str, ObjectEntry]) -> None:
        if len(found) > _MAX_OBJECTS:
            raise SidecarError(
                Code.CHECKPOINT_INVALID,
                f"{self.path} has too many objects for a checkpoint (at most {_MAX_OBJECTS})",
            )
