"""SkyRL's ``manifest.json``: XOR of each changed tensor, with its dtype and shape. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from rlfleet_sidecar.deltas.formats import checksums, fields
from rlfleet_sidecar.deltas.formats.delta import BadDeltaError, Delta, Encoding, Fragment
from rlfleet_sidecar.deltas.formats.shard import Shard

_DTYPES = {
    "bfloat16": "BF16",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
    "uint8": "U8",
    "int8": "I8",
    "int16": "I16",
    "uint16": "U16",
    "int32": "I32",
    "uint32": "U32",
    "int64": "I64",
    "uint64": "U64",
    "bool": "BOOL",
}
_DEFAULT = "xxh3-128"


@dataclass(frozen=True, slots=True)
class DeltaManifest:
    """A checked manifest."""

    number: int
    parent: int
    records: tuple["_Record", ...]
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Record:
    tensor: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    key: str
    nbytes: int
    algorithm: str
    checksum: str


def manifest_of(found: fields.JsonFields, number: int) -> DeltaManifest:
    """Check the manifest of the delta with this number."""
    fields.demand("", "version", fields.natural(found, "version", ""), number)
    parent = fields.natural(found, "base_version", "")
    fields.demand("", "base_version", parent, number - 1)
    records = tuple(map(_record, fields.objects(found, "tensors", "")))
    if (twice := fields.repeated(record.tensor for record in records)) is not None:
        raise BadDeltaError(f"lists tensor {twice} twice; publish each tensor once")
    files = {record.file for record in records}
    listed = found.get("payload_files")
    if missing := sorted(files - set(map(str, listed if isinstance(listed, list) else ()))):
        fields.demand("", "payload_files", listed, [missing[0]])
    return DeltaManifest(number, parent, records, tuple(sorted(files)))


def _record(found: fields.JsonFields) -> _Record:
    tensor = fields.text(found, "name", "tensors")
    dtype = fields.text(found, "dtype", tensor)
    if dtype not in _DTYPES:
        fields.demand(tensor, "dtype", dtype, "bfloat16")
    # The form before checksums had names.
    is_old = "checksum" not in found
    algorithm = "sha256" if is_old else str(found.get("checksum_algorithm", _DEFAULT))
    checksums.demand_known(algorithm, f"{tensor}.checksum_algorithm")
    checksum = found.get("sha256" if is_old else "checksum")
    return _Record(
        tensor=tensor,
        dtype=_DTYPES[dtype],
        shape=fields.naturals(found, "shape", tensor),
        file=fields.file_name(found.get("payload_file"), tensor, "payload_file"),
        key=fields.text(found, "payload_key", tensor),
        nbytes=fields.natural(found, "compressed_num_bytes", tensor),
        algorithm=algorithm,
        checksum=checksums.demand_form(checksum, algorithm, tensor),
    )


def delta_of(manifest: DeltaManifest, shards: Mapping[str, Shard]) -> Delta:
    """Return the delta that a manifest and its files make."""
    keys = {(record.file, record.key) for record in manifest.records}
    if len(keys) != len(manifest.records):
        raise BadDeltaError("has two tensors with one payload_key; publish each tensor once")
    for name, shard in shards.items():
        for key in shard.entries:
            if (name, key) not in keys:
                raise BadDeltaError(f"does not list {key} of {name}; publish each tensor once")
    fragments = {record.tensor: _fragment(record, shards) for record in manifest.records}
    return Delta(manifest.number, manifest.parent, fragments, skips_unknown=True)


def _fragment(record: _Record, shards: Mapping[str, Shard]) -> Fragment:
    entry = shards[record.file].entries.get(record.key)
    if entry is None:
        raise BadDeltaError(
            f"lists tensor {record.tensor} in {record.file}, which does not contain it;"
            " publish it again"
        )
    fields.demand(record.tensor, "compressed_num_bytes", record.nbytes, entry.nbytes)
    return Fragment(
        tensor=record.tensor,
        file=record.file,
        begin=entry.begin,
        nbytes=entry.nbytes,
        encoding=Encoding.XOR,
        algorithm=record.algorithm,
        checksum=record.checksum,
        dtype=record.dtype,
        shape=record.shape,
    )
