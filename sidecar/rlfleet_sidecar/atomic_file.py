"""Writes a small file atomically: under another name first, then renamed."""

import os
from pathlib import Path


def write_whole(path: Path, text: str, *, lasting: bool = False) -> None:
    """Write a file; ``lasting`` also syncs it, for a crash of the node. Raises OSError."""
    draft = path.with_suffix(".new")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        if lasting:
            file.flush()
            os.fsync(file.fileno())
    draft.replace(path)
    if lasting:
        sync(path.parent)


def sync(path: Path) -> None:
    """Have a file or a directory outlive the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
