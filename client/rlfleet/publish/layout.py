"""Names, headers and index of the published format, as text and bytes; no file is touched.

The format is that of slime and miles (`weight_vNNNNNN`): a delta's index names its encoding, and
a full version's does not. It must stay true that the index names every file that a reader needs.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

from rlfleet_contract.engine.safetensors import BITS, Digest, Tensor

INDEX = "model.safetensors.index.json"
MARKER = "STABLE"
POINTER = "latest"
UPDATES = "updates"
"""With a pointer next to it, versions lie in this folder (Stitch)."""
_NAME = re.compile(r"weight_v(\d{6,})")
_POINTER = re.compile(r"(?:([^/\s]+)/)?weight_v(\d{6,})")
_ALIGNED = 8
_BYTE = 8


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor without its bytes."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Its size."""
        count = 1
        for length in self.shape:
            count *= length
        return count * BITS[self.dtype] // _BYTE


@dataclass(frozen=True, slots=True)
class DeltaHeader:
    """What an index says of a delta, and not of a full version."""

    base: int
    encoding: str
    checksum: str


def name_of(version: int) -> str:
    """Return the directory of a version."""
    return f"weight_v{version:06d}"


def version_of(name: str) -> int | None:
    """Return the version of a directory; None if the name is another's."""
    found = _NAME.fullmatch(name)
    return None if found is None else int(found[1])


def pointer_to(run: str, version: int) -> str:
    """Return what the pointer says."""
    return f"{run}/{name_of(version)}"


def parsed_pointer(text: str) -> tuple[str, int] | None:
    """Return run and version that a pointer names; None if it is not a pointer."""
    found = _POINTER.fullmatch(text.strip())
    return None if found is None else (found[1] or "", int(found[2]))


def shards(sizes: Mapping[str, int], limit: int) -> list[list[str]]:
    """Return the tensors of each file, in order: each at most the limit, or one tensor."""
    found: list[list[str]] = []
    left = 0
    for name, size in sizes.items():
        if not found or size > left:
            found.append([])
            left = limit
        found[-1].append(name)
        left -= size
    return found


def shard_name(number: int, count: int) -> str:
    """Return the name of a file, counted from 0."""
    return f"model-{number:05d}-of-{count:05d}.safetensors"


def in_file_order(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return the tensors with the widest type first, so that each begins at a multiple of it."""
    return dict(sorted(entries.items(), key=lambda item: (-BITS[item[1].dtype], item[0])))


def header(entries: Mapping[str, Entry], metadata: Mapping[str, str]) -> bytes:
    """Return the beginning of a safetensors file with these tensors, in this order."""
    fields: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    begin = 0
    for name, entry in entries.items():
        end = begin + entry.nbytes
        fields[name] = {
            "dtype": entry.dtype,
            "shape": list(entry.shape),
            "data_offsets": [begin, end],
        }
        begin = end
    text = json.dumps(fields, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    return len(text).to_bytes(8, "little") + text


def digest(entries: Mapping[str, Entry], hashes: Mapping[str, bytes]) -> str:
    """Return the digest of all tensors of a version, which workers compute too."""
    found = Digest()
    for name, entry in entries.items():
        found.add(Tensor(name, entry.dtype, entry.shape, 0, entry.nbytes), hashes[name])
    return found.hexdigest()


def index(
    version: int,
    files: Sequence[tuple[str, Iterable[str]]],
    total: int,
    delta: DeltaHeader | None,
    digest: str,
) -> bytes:
    """Return the index: which file holds which tensor.

    Its own id makes it another than any index of the same number, elsewhere or later. Its digest
    is of all tensors of the version, also of those that a delta does not change.
    """
    metadata: dict[str, object] = {
        "version": f"{version:06d}",
        "id": uuid4().hex,
        "digest": digest,
    }
    if delta is None:
        metadata["total_size"] = total
    else:
        metadata |= {
            "base_version": f"{delta.base:06d}",
            "delta_encoding": delta.encoding,
            "compression_format": "zstd",
            "checksum_format": delta.checksum,
        }
    weight_map = {tensor: name for name, tensors in files for tensor in tensors}
    return json.dumps({"metadata": metadata, "weight_map": weight_map}, indent=2).encode() + b"\n"
