"""A version's directory as the checks see it: names, stamps and exact reads of its files.

safe_paths.py implements it for a volume, stores/ for an object store. It must stay true that
what is read of an opened file belongs to its stamp, or fails.
"""

from contextlib import AbstractContextManager
from typing import Protocol

from rlfleet_contract.engine.safetensors import FileStamp


class Location(Protocol):
    """A path or a URL, for messages."""

    def __truediv__(self, name: str, /) -> "Location":
        """Return the place of a file in it."""


class Reading(Protocol):
    """One opened file."""

    @property
    def stamp(self) -> FileStamp:
        """Its stamp when it was opened."""

    @property
    def request_bytes(self) -> int:
        """What a request should ask for if so much is wanted; 0 where small reads cost little."""

    def now(self) -> FileStamp:
        """Return its stamp as it is now."""

    def read(self, length: int, offset: int) -> bytes:
        """Return exactly this range; raises BadHeaderError if the file ends before."""

    def fill(self, view: memoryview, offset: int) -> None:
        """Read exactly as many bytes as fit; raises BadHeaderError if the file ends before."""


class Root(Protocol):
    """What holds the versions, and their trainer's pointer."""

    @property
    def path(self) -> Location:
        """Where it is."""

    def all_names(self) -> list[str]:
        """Return the sorted names in it, however many; raises SidecarError if it cannot list."""

    def text(self, name: str, most: int) -> bytes | None:
        """Return so many bytes of a file at most; None if there is none of this name."""


class Folder(Protocol):
    """An opened directory."""

    @property
    def path(self) -> Location:
        """Where it is."""

    @property
    def follow(self) -> bool:
        """Whether it is the base model's, which may hold more than its index lists."""

    def names(self) -> list[str]:
        """Return its sorted names; raises if there are more than any checkpoint has."""

    def modified_ns(self, name: str) -> int | None:
        """Return the time of a file's last write; None if it does not exist."""

    def stamp(self, name: str) -> FileStamp | None:
        """Return the stamp of a file without opening it; None if it does not exist."""

    def stamps(self) -> tuple[FileStamp, ...]:
        """Return the stamps of all its files."""

    def open(self, name: str) -> AbstractContextManager[Reading]:
        """Open one file; raises SidecarError if it is not readable."""
