"""Whether the files of a mounted Secret were replaced, which a kubelet does in a running pod."""

from collections.abc import Iterable
from pathlib import Path

FileStates = tuple[tuple[int, int, int] | None, ...]
"""Of each file what changes with it; None for one that does not exist."""


def states_of(files: Iterable[Path]) -> FileStates:
    """Return the files' states; raises OSError for one that may not be looked at."""
    return tuple(map(_state, files))


def _state(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
