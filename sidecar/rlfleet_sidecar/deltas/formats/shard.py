"""The header of a payload file: one compressed fragment per tensor. Pure.

It must stay true that an accepted header describes every byte of its file, and that a file which
is shorter than its header says counts as incomplete, not as malformed.
"""

from dataclasses import dataclass

from rlfleet_contract.engine.safetensors import (
    LENGTH_BYTES,
    MAX_HEADER_BYTES,
    BadHeaderError,
    Tensor,
    parse_header,
)
from rlfleet_sidecar.deltas.formats import fields
from rlfleet_sidecar.deltas.formats.delta import BadDeltaError, TornDeltaError


@dataclass(frozen=True, slots=True)
class Shard:
    """The entries of one payload file."""

    entries: dict[str, Tensor]
    metadata: dict[str, object]
    """Of slime and miles: the checksum by tensor."""


def length_of(prefix: bytes, file_size: int) -> int:
    """Return the length of the header, from the first bytes of its file."""
    if file_size < LENGTH_BYTES:
        raise _torn(file_size, LENGTH_BYTES)
    length = int.from_bytes(prefix, "little")
    if length > MAX_HEADER_BYTES:
        raise BadDeltaError(
            f"has a header of {length} bytes, expected at most {MAX_HEADER_BYTES}; publish it again"
        )
    if file_size < LENGTH_BYTES + length:
        raise _torn(file_size, LENGTH_BYTES + length)
    return length


def shard_of(header: bytes, file_size: int) -> Shard:
    """Parse a header; raises if an entry is no list of bytes."""
    found = fields.object_of(header)
    end = LENGTH_BYTES + len(header) + max(map(_end, found.values()), default=0)
    if file_size < end:
        raise _torn(file_size, end)
    try:
        tensors = parse_header(header, file_size)
    except BadHeaderError as error:
        raise BadDeltaError(f"is damaged: {error}; publish it again") from error
    for tensor in tensors:
        fields.demand(tensor.name, "dtype", tensor.dtype, "U8")
        fields.demand(tensor.name, "shape", list(tensor.shape), [tensor.nbytes])
    metadata = found.get("__metadata__", {})
    return Shard(
        {tensor.name: tensor for tensor in tensors},
        metadata if isinstance(metadata, dict) else {},
    )


def _end(entry: object) -> int:
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    last = offsets[-1] if isinstance(offsets, list) and offsets else 0
    return last if isinstance(last, int) else 0


def _torn(file_size: int, expected: int) -> TornDeltaError:
    return TornDeltaError(
        f"has {file_size} bytes, expected {expected} by its header; wait until it is complete"
    )
