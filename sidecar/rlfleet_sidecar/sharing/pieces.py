"""How a version is divided into pieces, and which state of it an edition names. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from blake3 import blake3

from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_contract.worker.supply import PIECE_BYTES


class Piece(NamedTuple):
    """A range of one file."""

    name: str
    begin: int
    end: int


def pieces_of(files: Sequence[FileStamp], nbytes: int = PIECE_BYTES) -> tuple[Piece, ...]:
    """Return a version's pieces in order."""
    return tuple(
        Piece(stamp.name, begin, min(begin + nbytes, stamp.size))
        for stamp in files
        for begin in range(0, stamp.size, nbytes)
    )


def edition_of(files: Sequence[FileStamp]) -> str:
    """Return what identifies this state of a version's files on every worker of the store.

    Without the device, which differs between mounts of one volume.
    """
    lines = (f"{f.name}\0{f.size}\0{f.mtime_ns}\0{f.inode}\n" for f in files)
    return blake3("".join(lines).encode()).hexdigest()[:32]
