"""Reads published versions by the format's description, with no code of the publisher."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
import zstandard
from blake3 import blake3

State = dict[str, tuple[str, tuple[int, ...], bytes]]


def read_file(data: bytes) -> tuple[State, dict[str, str]]:
    """Return the tensors and the metadata of a safetensors file."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    body = data[8 + length :]
    assert sum(f["data_offsets"][1] - f["data_offsets"][0] for f in header.values()) == len(body)
    found = {
        name: (f["dtype"], tuple(f["shape"]), body[f["data_offsets"][0] : f["data_offsets"][1]])
        for name, f in header.items()
    }
    return found, metadata


def is_complete(folder: Path) -> bool:
    """Return whether a reader of the format would take the version."""
    return (folder / "model.safetensors.index.json").exists()


def index_of(folder: Path) -> dict[str, Any]:
    """Return the index."""
    found: dict[str, Any] = json.loads((folder / "model.safetensors.index.json").read_text())
    assert found["metadata"]["version"] == folder.name.removeprefix("weight_v")
    return found


def read(folder: Path, base: State | None = None) -> State:
    """Return the tensors of a version, of a delta by its base."""
    index = index_of(folder)
    files: State = {}
    checksums: dict[str, str] = {}
    for file in sorted(set(index["weight_map"].values())):
        tensors, metadata = read_file((folder / file).read_bytes())
        assert {n for n, f in index["weight_map"].items() if f == file} == tensors.keys()
        files |= tensors
        checksums |= metadata
    if "delta_encoding" not in index["metadata"]:
        return files
    assert base is not None
    return base | {
        name: applied(name, base[name], payload, index["metadata"], checksums)
        for name, payload in files.items()
    }


def applied(
    name: str,
    before: tuple[str, tuple[int, ...], bytes],
    payload: tuple[str, tuple[int, ...], bytes],
    metadata: dict[str, str],
    checksums: dict[str, str],
) -> tuple[str, tuple[int, ...], bytes]:
    """Return a tensor after its delta."""
    assert metadata["compression_format"] == "zstd"
    dtype, shape, packed = payload
    assert (dtype, shape) == ("U8", (len(packed),))
    change = np.frombuffer(zstandard.ZstdDecompressor().decompress(packed), np.uint8)
    new = np.frombuffer(before[2], np.uint8).copy()
    if metadata["delta_encoding"] == "xor":
        new ^= change
    else:
        assert metadata["delta_encoding"] == "overwrite"
        count = int(change[:4].view("<u4")[0])
        positions = change[4 : 4 + 4 * count].view("<u4")
        assert (np.diff(positions.astype(np.int64)) > 0).all()
        new[positions] = change[4 + 4 * count :]
    hashes = {"xxh3-128": xxhash.xxh3_128, "blake3": blake3}
    assert hashes[metadata["checksum_format"]](new.tobytes()).hexdigest() == checksums[name]
    return before[0], before[1], new.tobytes()


def versions(root: Path) -> list[str]:
    """Return the complete versions, oldest first."""
    return sorted(path.name for path in root.glob("weight_v*") if is_complete(path))


def newest(root: Path, base: State | None = None) -> State:
    """Return the tensors of the newest version: from the newest full one, delta by delta."""
    names = versions(root)
    full = [n for n in names if "delta_encoding" not in index_of(root / n)["metadata"]]
    state, chain = base, names
    if full:
        state, chain = read(root / full[-1]), names[names.index(full[-1]) + 1 :]
    for name in chain:
        metadata = index_of(root / name)["metadata"]
        assert int(metadata["base_version"]) == int(metadata["version"]) - 1
        state = read(root / name, state)
    assert state is not None
    return state
