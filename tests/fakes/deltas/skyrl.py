"""Deltas with a manifest, as SkyRL writes them."""

import json
from collections.abc import Mapping
from pathlib import Path

from tests.fakes.checkpoints import BF16_BYTES, SHAPES
from tests.fakes.deltas.shard import Shard
from tests.fakes.deltas.tensors import checksum_of, fragment_of, packed


def write_skyrl(
    root: Path, number: int, old: Mapping[str, bytes], new: Mapping[str, bytes]
) -> Path:
    """Write what SkyRL publishes, the manifest last."""
    directory = root / f"delta-{number:08d}"
    directory.mkdir(parents=True, exist_ok=True)
    changed = [name for name in new if new[name] != old.get(name)]
    file = "delta-rank00000-file000000.safetensors"
    payloads = {
        name: packed(fragment_of(old.get(name, bytes(len(new[name]))), new[name]))
        for name in changed
    }
    if payloads:
        Shard(payloads).write(directory / file)
    records = [
        {
            "name": name,
            "dtype": "bfloat16",
            "shape": list(SHAPES.get(name, (len(new[name]) // BF16_BYTES,))),
            "uncompressed_num_bytes": len(new[name]),
            "compressed_num_bytes": len(payload),
            "payload_file": file,
            "payload_key": name,
            "checksum": checksum_of(new[name], "xxh3-128"),
            "checksum_algorithm": "xxh3-128",
        }
        for name, payload in payloads.items()
    ]
    manifest = {
        "version": number,
        "base_version": number - 1,
        "tensors": records,
        "total_uncompressed_num_bytes": sum(len(new[name]) for name in changed),
        "total_compressed_num_bytes": sum(map(len, payloads.values())),
        "payload_files": [file] if payloads else [],
    }
    (directory / "manifest.json").write_text(json.dumps(manifest))
    return directory
