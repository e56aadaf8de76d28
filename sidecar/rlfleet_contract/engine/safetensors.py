"""The safetensors format, and how the sidecar identifies files to the engine.

Both sides parse headers with this one function, so the engine reads what the sidecar
accepted. It must stay true that an accepted header describes every byte of its file
exactly once: no hole, no overlap, no byte left over.
"""

import json
from collections.abc import Callable, Collection
from hashlib import sha256
from math import prod
from typing import Any, NamedTuple

from blake3 import blake3
from pydantic import Field

from rlfleet_contract.schema import ContractRequest

LENGTH_BYTES = 8
"""A file begins with the header's length, little-endian."""
MAX_HEADER_BYTES = 100_000_000
"""The format's own bound (huggingface/safetensors)."""
_POINTER = b"version "
"""How a file begins that Git LFS has not fetched; of a header it would be the length."""
MAX_RANK = 32
MAX_DIGEST = 64

BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "U16": 16,
    "I16": 16,
    "F16": 16,
    "BF16": 16,
    "U32": 32,
    "I32": 32,
    "F32": 32,
    "U64": 64,
    "I64": 64,
    "F64": 64,
}
"""Size of one element by dtype; other dtypes are rejected."""


class FileStamp(ContractRequest):
    """One file at the time of the check; the engine rejects it if it differs when opened."""

    name: str = Field(pattern=r"^[^/\x00]+$")
    size: int
    mtime_ns: int
    inode: int
    device: int = 0
    """Of the file system. It may differ between mounts, so only the sidecar compares it."""


class Tensor(NamedTuple):
    """One entry of a header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    """Offset of the first byte from the start of the file."""
    nbytes: int


class Algorithm(NamedTuple):
    """How tensors are hashed; digests of different algorithms are not comparable."""

    prefix: str
    """What its digests begin with."""
    new: Callable[..., Any]
    """Makes a hash object, of some bytes if they are given."""


BLAKE3 = Algorithm("blake3:", blake3)
"""Of versions: four times as fast as SHA-256 with the processor's own instructions."""
SHA256 = Algorithm("", sha256)
"""Of adapters, whose digests workers of different releases compare."""


class Digest:
    """Digest of a checkpoint: names, dtypes, shapes and bytes of all tensors, in name order.

    The sidecar computes it of the checked files and the engine of the installed tensors; equal
    digests prove that they are the same. Tensors may come in any order.
    """

    def __init__(self, algorithm: Algorithm = BLAKE3) -> None:
        self.algorithm = algorithm
        self._entries: dict[str, bytes] = {}
        self._hashes: dict[str, bytes] = {}

    def add(self, tensor: Tensor, hashed: bytes) -> None:
        """Add a tensor with the hash of its bytes."""
        entry = f"{tensor.name}\0{tensor.dtype}\0{tensor.shape}\0"
        self._entries[tensor.name] = entry.encode() + hashed
        self._hashes[tensor.name] = hashed

    def has_same_bytes(self, one: str, other: str) -> bool:
        """Return whether two of the tensors added so far have the same bytes."""
        return self._hashes[one] == self._hashes[other]

    def hexdigest(self, without: Collection[str] = ()) -> str:
        """Return the digest over the tensors added so far, but for those of these names."""
        names = sorted(self._entries.keys() - set(without))
        entries = b"".join(self._entries[name] for name in names)
        found = self.algorithm.prefix + self.algorithm.new(entries).hexdigest()
        # As long as a digest in a proof may be: of BLAKE3 228 bits are left.
        return str(found[:MAX_DIGEST])


class BadHeaderError(ValueError):
    """A header that does not describe its file; the message says why."""


class UnsupportedDtypeError(BadHeaderError):
    """A tensor of a dtype that is not loaded, such as the format's own F4 or C64."""


def header_length(prefix: bytes, file_size: int) -> int:
    """Return the length of the header, from the first eight bytes of its file."""
    if len(prefix) < LENGTH_BYTES:
        raise BadHeaderError(f"file too short for a header ({file_size} bytes)")
    length = int.from_bytes(prefix[:LENGTH_BYTES], "little")
    if prefix == _POINTER:
        raise BadHeaderError("it is a pointer of Git LFS, which git lfs pull replaces")
    if length > MAX_HEADER_BYTES:
        raise BadHeaderError(f"header too long ({length} bytes, at most {MAX_HEADER_BYTES})")
    if LENGTH_BYTES + length > file_size:
        raise BadHeaderError(f"header longer than its file ({length} bytes, file {file_size})")
    return length


def parse_header(header: bytes, file_size: int) -> tuple[Tensor, ...]:
    """Return the tensors of a file of ``file_size`` bytes, in file order."""
    start = LENGTH_BYTES + len(header)
    tensors = sorted(
        (_entry(name, fields, start) for name, fields in _fields(header).items()),
        key=lambda tensor: (tensor.begin, tensor.nbytes),
    )
    end = start
    for tensor in tensors:
        if tensor.begin != end:
            raise BadHeaderError(
                f"tensor {tensor.name} begins at byte {tensor.begin} (expected {end})"
            )
        end += tensor.nbytes
    if end != file_size:
        raise BadHeaderError(f"file has {file_size} bytes (expected {end} by its header)")
    return tuple(tensors)


def _fields(header: bytes) -> dict[str, object]:
    try:
        parsed = json.loads(header, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise BadHeaderError(f"header is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise BadHeaderError("header is not a JSON object")
    parsed.pop("__metadata__", None)
    return parsed


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadHeaderError("header lists a tensor twice")
    return found


def _entry(name: str, fields: object, start: int) -> Tensor:
    if not isinstance(fields, dict):
        raise BadHeaderError(f"entry of tensor {name} is not a JSON object")
    bits = BITS.get(str(fields.get("dtype")))
    if bits is None:
        dtype = str(fields.get("dtype"))[:32]
        raise UnsupportedDtypeError(f"tensor {name} has unsupported dtype {dtype}")
    shape = _naturals(fields.get("shape"), f"shape of tensor {name}")
    offsets = _naturals(fields.get("data_offsets"), f"data_offsets of tensor {name}")
    if len(shape) > MAX_RANK or len(offsets) != len(("begin", "end")):
        raise BadHeaderError(
            f"tensor {name} has {len(shape)} dimensions and {len(offsets)} data_offsets"
            f" (expected at most {MAX_RANK}, and 2)"
        )
    nbytes = prod(shape) * bits // 8
    if offsets[1] - offsets[0] != nbytes:
        raise BadHeaderError(
            f"tensor {name} has {offsets[1] - offsets[0]} bytes (expected {nbytes} by its shape)"
        )
    return Tensor(name, str(fields["dtype"]), shape, start + offsets[0], nbytes)


def _naturals(value: object, what: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(
        isinstance(item, int) and not isinstance(item, bool) and item >= 0 for item in value
    ):
        raise BadHeaderError(f"{what} is not a list of integers >= 0")
    return tuple(value)
