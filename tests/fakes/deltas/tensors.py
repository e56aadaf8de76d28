"""The tensors of a training run, and how one is encoded as a change of the last.

Deltas are written here in the real formats, by an own small writer for each;
tests/unit/rlfleet_sidecar/deltas/publishers has deltas that the publishers' own code wrote.
"""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import zstandard

from rlfleet_sidecar.deltas.formats import checksums
from tests.fakes.checkpoints import BF16_BYTES

Tensors = dict[str, bytes]


def tensors_of(directory: Path) -> Tensors:
    """Read the tensors of all files of a checkpoint."""
    found: Tensors = {}
    for path in sorted(directory.glob("*.safetensors")):
        data = path.read_bytes()
        start = 8 + struct.unpack("<Q", data[:8])[0]
        for name, entry in json.loads(data[8:start]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                found[name] = data[start + begin : start + end]
    return found


def trained(tensors: Mapping[str, bytes], seed: int, density: float = 0.02) -> Tensors:
    """Return the next step: some bits of some low bytes differ, so that no value becomes a NaN."""
    random, new = Random(seed), dict(tensors)  # noqa: S311 - no secret
    for name, data in tensors.items():
        changed = bytearray(data)
        for _ in range(max(1, int(len(data) * density))):
            changed[random.randrange(len(data) // BF16_BYTES) * BF16_BYTES] ^= random.randrange(
                1, 8
            )
        new[name] = bytes(changed)
    return new


def fragment_of(old: bytes, new: bytes, encoding: str = "xor") -> bytes:
    """Encode the change of one tensor, uncompressed."""
    before, after = np.frombuffer(old, np.uint8), np.frombuffer(new, np.uint8)
    if encoding == "xor":
        return (before ^ after).tobytes()
    places = np.flatnonzero(before != after).astype("<u4")
    return b"".join([struct.pack("<I", len(places)), places.tobytes(), after[places].tobytes()])


def checksum_of(data: bytes, algorithm: str) -> str:
    hashed = checksums.new(algorithm)
    hashed.update(data)
    return hashed.hexdigest()


def packed(data: bytes, **settings: Any) -> bytes:
    return bytes(zstandard.ZstdCompressor(level=1, **settings).compress(data))
