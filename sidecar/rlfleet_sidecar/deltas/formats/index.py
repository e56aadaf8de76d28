"""The index of slime's and miles's deltas, ``model.safetensors.index.json``. Pure.

Its metadata has ``delta_encoding``; the index of a full checkpoint has none. It must stay true
that the tensors of the files are exactly those of the index, each in one file.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rlfleet_contract.engine.safetensors import BLAKE3, MAX_DIGEST
from rlfleet_sidecar.deltas.formats import checksums, fields
from rlfleet_sidecar.deltas.formats.delta import BadDeltaError, Delta, Encoding, Fragment
from rlfleet_sidecar.deltas.formats.shard import Shard

_METADATA = "metadata"


@dataclass(frozen=True, slots=True)
class Index:
    """A checked index."""

    number: int
    parent: int
    encoding: Encoding
    algorithm: str
    files: dict[str, str]
    """The file of each tensor."""


def is_delta(found: fields.JsonFields) -> bool:
    """Return whether an index is one of a delta."""
    metadata = found.get(_METADATA)
    return isinstance(metadata, dict) and "delta_encoding" in metadata


def is_numbered(found: fields.JsonFields, number: int) -> bool:
    """Return whether an index names this version, as publishers do that write it last."""
    metadata = found.get(_METADATA)
    named = metadata.get("version") if isinstance(metadata, dict) else None
    # Not by int(): it fails at thousands of digits.
    return isinstance(named, str) and named.isascii() and named.lstrip("0") == str(number or "")


def digest_of(found: fields.JsonFields, number: int) -> str | None:
    """Return the digest of all tensors of this version; None if its publisher wrote none."""
    metadata = found.get(_METADATA)
    digest = metadata.get("digest") if isinstance(metadata, dict) else None
    is_known = isinstance(digest, str) and digest.startswith(BLAKE3.prefix)
    return str(digest)[:MAX_DIGEST] if is_known and is_numbered(found, number) else None


def index_of(found: fields.JsonFields, number: int) -> Index:
    """Check the index of the delta with this number."""
    metadata = fields.mapping(found, _METADATA, "")
    encoding = fields.text(metadata, "delta_encoding", _METADATA)
    if encoding not in tuple(Encoding):
        fields.demand(_METADATA, "delta_encoding", encoding, "xor or overwrite")
    packed = fields.text(metadata, "compression_format", _METADATA)
    fields.demand(_METADATA, "compression_format", packed, "zstd")
    algorithm = fields.text(metadata, "checksum_format", _METADATA)
    fields.demand(_METADATA, "version", fields.decimal(metadata, "version", _METADATA), number)
    parent = fields.decimal(metadata, "base_version", _METADATA)
    fields.demand(_METADATA, "base_version", parent, number - 1)
    weight_map = fields.mapping(found, "weight_map", "")
    return Index(
        number=number,
        parent=parent,
        encoding=Encoding(encoding),
        algorithm=checksums.demand_known(algorithm, f"{_METADATA}.checksum_format"),
        files={
            tensor: fields.file_name(file, "weight_map", tensor)
            for tensor, file in weight_map.items()
        },
    )


def delta_of(index: Index, shards: Mapping[str, Shard]) -> Delta:
    """Return the delta that an index and its files make."""
    for name, shard in shards.items():
        for tensor in shard.entries:
            if (listed := index.files.get(tensor)) != name:
                raise BadDeltaError(
                    f"lists tensor {tensor} in {listed or 'no file'}, but {name} contains it too;"
                    " publish each tensor once"
                )
    return Delta(
        index.number,
        index.parent,
        {
            tensor: _fragment(index, tensor, file, shards[file])
            for tensor, file in index.files.items()
        },
    )


def _fragment(index: Index, tensor: str, file: str, shard: Shard) -> Fragment:
    entry = shard.entries.get(tensor)
    if entry is None:
        raise BadDeltaError(
            f"lists tensor {tensor} in {file}, which does not contain it; publish it again"
        )
    return Fragment(
        tensor=tensor,
        file=file,
        begin=entry.begin,
        nbytes=entry.nbytes,
        encoding=index.encoding,
        algorithm=index.algorithm,
        checksum=checksums.demand_form(shard.metadata.get(tensor), index.algorithm, tensor),
    )
