"""The payload files of a delta, which all formats have alike."""

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Shard:
    """One payload file before it is written."""

    payloads: dict[str, bytes]
    metadata: dict[str, str] = field(default_factory=dict)
    dtype: str = "U8"
    shapes: dict[str, list[int]] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        header: dict[str, Any] = {"__metadata__": self.metadata} if self.metadata else {}
        begin = 0
        for name, payload in self.payloads.items():
            shape = self.shapes.get(name, [len(payload)])
            offsets = [begin, begin + len(payload)]
            header[name] = {"dtype": self.dtype, "shape": shape, "data_offsets": offsets}
            begin += len(payload)
        encoded = json.dumps(header).encode()
        path.write_bytes(
            struct.pack("<Q", len(encoded)) + encoded + b"".join(self.payloads.values())
        )


def first_shard(directory: Path) -> Path:
    return min(directory.glob("*.safetensors"))


def rewritten(directory: Path, change: Callable[[Shard], object]) -> None:
    """Write the first payload file again after a change."""
    path = first_shard(directory)
    data = path.read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:start])
    metadata = header.pop("__metadata__", {})
    payloads = {
        name: data[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]]
        for name, entry in header.items()
    }
    shard = Shard(payloads, metadata)
    change(shard)
    shard.write(path)
