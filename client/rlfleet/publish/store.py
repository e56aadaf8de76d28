"""What a publisher asks of the place where versions lie; volume.py and bucket.py answer."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

Pieces = Iterator[bytes | memoryview]


class Draft(Protocol):
    """A version that is being written; no reader takes it for complete."""

    def write(self, name: str, pieces: Pieces) -> None:
        """Write a file; it is durable when this returns."""

    def commit(self, name: str, content: bytes) -> None:
        """Write the last file: from now on the version is complete."""


class PublishingStore(Protocol):
    """A folder or a prefix with versions."""

    def numbers(self) -> set[int]:
        """Return each number that is in use, of unfinished versions too."""

    def index_of(self, version: int) -> bytes | None:
        """Return the index of a version; None if it is not complete."""

    def draft(self, version: int) -> AbstractContextManager[Draft]:
        """Begin a version whose number is free; what fails inside leaves none."""

    def point(self, run: str, version: int) -> None:
        """Let the pointer name a version; raises if it already names a later one of the run."""

    def close(self) -> None:
        """Let another publisher write here."""
