"""How workers give one another the pieces of a version.

A piece is 16 MiB of one file, or its end. Pieces are numbered through all files in the order of
their names. It must stay true that a hash comes only from a worker that reads the store.
"""

from typing import Annotated

from pydantic import Field, StringConstraints

from rlfleet_contract.schema import ContractReply, ContractRequest

PIECE_BYTES = 16 * 1024 * 1024
EDITION_PATTERN = r"^[0-9a-f]{32}$"
"""Identifies a version's files by name, size and time: a version that is written again under its
name has another edition."""
Address = Annotated[
    str, StringConstraints(pattern=r"^([0-9.]{7,15}|\[[0-9a-f:.]{2,45}\]):[0-9]{1,5}$")
]
"""IP address and port of a worker's sidecar."""
PieceHash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Supply(ContractRequest):
    """Where one worker gets a version from; without readers it reads the store."""

    readers: Annotated[tuple[Address, ...], Field(max_length=16)] = ()
    """Workers with the hashes that count, if they read the store."""
    senders: Annotated[tuple[Address, ...], Field(max_length=32)] = ()
    """Workers that may send it pieces, the nearest first."""
    succeeds: bool = False
    """Whether it reads the store, and serves hashes, once no reader is left or all are slow."""


class Holding(ContractReply):
    """What a worker has of a version that it shares."""

    pieces: int = Field(ge=0)
    """The number of the version's pieces."""
    held: int = Field(ge=0)
    """Pieces that it can send."""
    within_reach: int = Field(ge=0)
    """Pieces that the worker which it receives from can send."""
    pace: int = Field(ge=0)
    """Pieces that it received in the last two seconds."""
    reads: bool = False
    """Whether it reads the store, or has read it."""
    first: int = Field(default=0, ge=0)
    """The number of the piece of the first hash."""
    hashes: list[PieceHash | None] = Field(default_factory=list)
    """BLAKE3 of each piece from there on, as far as it knows them; empty unless it reads."""
