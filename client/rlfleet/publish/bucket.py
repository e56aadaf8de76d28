"""Versions in a bucket, through obstore: objects are whole or absent, and the index is put last.

obstore retries what the store rejects for a time, and sends large objects in parts; it is
imported only here.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any
from uuid import uuid4

from rlfleet.publish import layout
from rlfleet.publish.errors import PublishError
from rlfleet.publish.pointer import demand_forward
from rlfleet.publish.store import Pieces

_PART = 16 * 2**20
_CLAIM = ".claimed"
_TRIES = 5
_PAUSE_S = 2.0


def opened(target: Any, options: Mapping[str, Any], *, pointed: bool) -> "BucketStore":
    """Return the store of an URL or of obstore's object; raises PublishError without obstore."""
    try:
        import obstore  # noqa: PLC0415 - only a trainer that publishes to a bucket has it
    except ImportError as error:
        raise PublishError(
            "publishing to a bucket needs obstore; run pip install 'obstore>=0.12,<0.13'"
        ) from error
    store = obstore.store.from_url(target, **options) if isinstance(target, str) else target
    return BucketStore(obstore, store, f"{layout.UPDATES}/" if pointed else "")


@dataclass(frozen=True, slots=True)
class _Objects:
    obstore: Any
    store: Any
    prefix: str

    def write(self, name: str, pieces: Pieces) -> None:
        path = f"{self.prefix}/{name}"
        self.obstore.put(self.store, path, pieces, use_multipart=True, chunk_size=_PART)

    def commit(self, name: str, content: bytes) -> None:
        self.create(name, content)

    def create(self, name: str, content: bytes) -> None:
        path = f"{self.prefix}/{name}"
        if not _is_put(self.obstore, self.store, path, content, "create"):
            raise PublishError(f"{path} exists already; let one trainer write there")


@dataclass(frozen=True, slots=True)
class BucketStore:
    """A bucket, or a prefix in it."""

    obstore: Any
    store: Any
    prefix: str

    def numbers(self) -> set[int]:
        """Return each number that an object has; those of a crashed trainer count too."""
        listed = self.obstore.list_with_delimiter(self.store, self.prefix or None)
        names = (path.rstrip("/").rpartition("/")[2] for path in listed["common_prefixes"])
        return {number for name in names if (number := layout.version_of(name)) is not None}

    def index_of(self, version: int) -> bytes | None:
        """Return the index of a version."""
        path = f"{self.prefix}{layout.name_of(version)}/{layout.INDEX}"
        return _read(self.obstore, self.store, path)[0]

    @contextmanager
    def draft(self, version: int) -> Iterator[_Objects]:
        """Begin a version; objects of a failed one stay, and its number is not used again."""
        objects = _Objects(self.obstore, self.store, f"{self.prefix}{layout.name_of(version)}")
        # Of two trainers that chose the same number, one must not write over the other's files.
        objects.create(_CLAIM, uuid4().hex.encode())
        yield objects

    def point(self, run: str, version: int) -> None:
        """Replace the pointer, unless another trainer did in between."""
        found, state = _read(self.obstore, self.store, layout.POINTER)
        demand_forward((found or b"").decode(errors="replace"), run, version)
        mode = "create" if found is None else state
        content = layout.pointer_to(run, version).encode()
        if not _is_put(self.obstore, self.store, layout.POINTER, content, mode):
            raise PublishError(
                f"another trainer moved {layout.POINTER}; let one trainer write there"
            )

    def close(self) -> None:
        """Nothing is held."""


def _is_put(obstore: Any, store: Any, path: str, content: bytes, mode: Any) -> bool:
    """Write under a condition; return whether the object has this content now.

    A write that was done but whose reply is an error or lost is repeated, and the repeated one
    meets the first. So content must be unlike another trainer's: it holds an id or a claimed
    number. obstore repeats after an error, but no conditional write whose connection was reset.
    """
    errors = obstore.exceptions
    for tries in count(1):
        try:
            obstore.put(store, path, content, mode=mode)
        except (errors.AlreadyExistsError, errors.PreconditionError):
            return _read(obstore, store, path)[0] == content
        except errors.GenericError:
            if tries == _TRIES:
                raise
            time.sleep(_PAUSE_S)
        else:
            break
    return True


def _read(obstore: Any, store: Any, path: str) -> tuple[bytes | None, dict[str, str]]:
    """Return an object, and what a write demands to replace no other state of it.

    S3 compares ETags; Google Cloud Storage compares generations, obstore's version.
    """
    try:
        found = obstore.get(store, path)
    except FileNotFoundError:
        return None, {}
    known = {name: found.meta[name] for name in ("e_tag", "version")}
    return bytes(found.bytes()), {name: text for name, text in known.items() if text}
