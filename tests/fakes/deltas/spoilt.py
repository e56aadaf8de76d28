"""Ways to spoil a delta with an index."""

import json
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.fakes.deltas.indexed import INDEX, write_index
from tests.fakes.deltas.shard import Shard, first_shard, rewritten
from tests.fakes.deltas.tensors import packed


def _index(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    (path,) = directory.glob("*.json")
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))


def _metadata(directory: Path, **fields: object) -> None:
    _index(directory, lambda found: found["metadata"].update(fields))


def _without(directory: Path, name: str) -> None:
    _index(directory, lambda found: found["metadata"].pop(name))


def _truncated(directory: Path, nbytes: int) -> None:
    path = first_shard(directory)
    path.write_bytes(path.read_bytes()[:-nbytes])


NORM = "model.norm.weight"
NORM_BYTES = 16


def _payload(directory: Path, payload: bytes, encoding: str = "xor") -> None:
    """Replace the fragment of the norm."""
    rewritten(directory, lambda shard: shard.payloads.update({NORM: payload}))
    _metadata(directory, delta_encoding=encoding)


def _overwrite(
    directory: Path, places: Sequence[int], count: int | None = None, encoding: str = "overwrite"
) -> None:
    """Leave one fragment, the norm's, which overwrites these places."""
    told = len(places) if count is None else count
    data = struct.pack(f"<{1 + len(places)}I", told, *places) + bytes(len(places))

    def change(shard: Shard) -> None:
        shard.payloads = {NORM: packed(data)}

    rewritten(directory, change)
    (shard,) = directory.glob("*.safetensors")
    write_index(directory, 1, {NORM: shard.name}, encoding)


def _twice_in_two_files(directory: Path) -> None:
    data = packed(bytes(NORM_BYTES))
    Shard({NORM: data}, {NORM: "0" * 32}).write(directory / "model-00001-of-00002.safetensors")
    _index(
        directory,
        lambda found: found["weight_map"].update(
            {"model.norm.weight": "model-00001-of-00002.safetensors"}
        ),
    )


def _twice_in_one_file(directory: Path) -> None:
    path = first_shard(directory)
    data = path.read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    header = data[8:start]
    entry = json.dumps({NORM: json.loads(header)[NORM]}).encode()[1:-1]
    header = header[:-1] + b"," + entry + b"}"
    path.write_bytes(struct.pack("<Q", len(header)) + header + data[start:])


def _header_length(directory: Path, length: int) -> None:
    path = first_shard(directory)
    path.write_bytes(struct.pack("<Q", length) + path.read_bytes()[8:])


def _renamed(directory: Path, name: str) -> None:
    def change(shard: Shard) -> None:
        shard.payloads[name] = shard.payloads.pop(NORM)
        shard.metadata[name] = shard.metadata.pop(NORM)

    rewritten(directory, change)
    _index(
        directory, lambda found: found["weight_map"].update({name: found["weight_map"].pop(NORM)})
    )


INCOMPLETE, INVALID, DIGEST = "CheckpointIncomplete", "CheckpointInvalid", "DigestMismatch"

SPOILED: dict[str, tuple[str, str, Callable[[Path], object]]] = {
    "no index": (INCOMPLETE, "has no model.safetensors.index.json", lambda d: (d / INDEX).unlink()),
    "an empty index": (INCOMPLETE, "ends after 0 bytes", lambda d: (d / INDEX).write_bytes(b"")),
    "half an index": (
        INCOMPLETE,
        "ends after 40 bytes",
        lambda d: (d / INDEX).write_bytes((d / INDEX).read_bytes()[:40]),
    ),
    "no shard": (INCOMPLETE, "which does not exist", lambda d: first_shard(d).unlink()),
    "a truncated shard": (INCOMPLETE, "by its header", lambda d: _truncated(d, 7)),
    "an empty shard": (INCOMPLETE, "has 0 bytes", lambda d: first_shard(d).write_bytes(b"")),
    "half a header": (
        INCOMPLETE,
        "by its header",
        lambda d: first_shard(d).write_bytes(first_shard(d).read_bytes()[:30]),
    ),
    "an index that is no JSON": (
        INVALID,
        "is not JSON",
        lambda d: (d / INDEX).write_text("{'a': 1}"),
    ),
    "a header that is no object": (
        INVALID,
        "is not a JSON object",
        lambda d: first_shard(d).write_bytes(struct.pack("<Q", 2) + b"[]"),
    ),
    "a name twice in the index": (
        INVALID,
        "twice",
        lambda d: (d / INDEX).write_text((d / INDEX).read_text().replace("lm_head.weight", NORM)),
    ),
    "an unknown encoding": (
        INVALID,
        "metadata.delta_encoding 'add', expected",
        lambda d: _metadata(d, delta_encoding="add"),
    ),
    "an unknown compression": (
        INVALID,
        "metadata.compression_format 'lz4', expected 'zstd'",
        lambda d: _metadata(d, compression_format="lz4"),
    ),
    "no compression": (
        INVALID,
        "metadata.compression_format 'None'",
        lambda d: _without(d, "compression_format"),
    ),
    "an unknown checksum": (
        INVALID,
        "metadata.checksum_format 'crc32', expected one of xxh3-128",
        lambda d: _metadata(d, checksum_format="crc32"),
    ),
    "the number of another version": (
        INVALID,
        "metadata.version '9', expected 1",
        lambda d: _metadata(d, version="000009"),
    ),
    "a version that is no number": (
        INVALID,
        "metadata.version 'newest', expected decimal digits",
        lambda d: _metadata(d, version="newest"),
    ),
    "a gap in the lineage": (
        INVALID,
        "metadata.base_version '3', expected 0",
        lambda d: _metadata(d, base_version="000003"),
    ),
    "itself as its base": (
        INVALID,
        "metadata.base_version '1', expected 0",
        lambda d: _metadata(d, base_version="000001"),
    ),
    "no base": (INVALID, "metadata.base_version", lambda d: _without(d, "base_version")),
    "a file outside its directory": (
        INVALID,
        "expected the name of a .safetensors file",
        lambda d: _index(d, lambda found: found["weight_map"].update({NORM: "../a.safetensors"})),
    ),
    "a file by its absolute path": (
        INVALID,
        "expected the name of a .safetensors file",
        lambda d: _index(d, lambda found: found["weight_map"].update({NORM: "/a.safetensors"})),
    ),
    "a file that is none": (
        INVALID,
        "expected the name of a .safetensors file",
        lambda d: _index(d, lambda found: found["weight_map"].update({NORM: 7})),
    ),
    "a shard that the index lacks": (
        INVALID,
        "does not list",
        lambda d: Shard({"x": b"y"}).write(d / "model-00009-of-00009.safetensors"),
    ),
    "a tensor that its shard lacks": (
        INVALID,
        "which does not contain it",
        lambda d: rewritten(d, lambda shard: shard.payloads.pop(NORM)),
    ),
    "a tensor that the index lacks": (
        INVALID,
        "in no file",
        lambda d: _index(d, lambda found: found["weight_map"].pop(NORM)),
    ),
    "a tensor in two shards": (INVALID, "contains it too", _twice_in_two_files),
    "a tensor twice in a shard": (INVALID, "twice", _twice_in_one_file),
    "no checksum": (
        INVALID,
        "has checksum 'None' of tensor model.norm.weight",
        lambda d: rewritten(d, lambda shard: shard.metadata.pop(NORM)),
    ),
    "a checksum in capitals": (
        INVALID,
        "lower-case",
        lambda d: rewritten(d, lambda shard: shard.metadata.update({NORM: "A" * 32})),
    ),
    "a checksum of another length": (
        INVALID,
        "expected 32 lower-case",
        lambda d: rewritten(d, lambda shard: shard.metadata.update({NORM: "ab" * 4})),
    ),
    "fragments that are no bytes": (
        INVALID,
        "dtype 'I8', expected 'U8'",
        lambda d: rewritten(d, lambda shard: setattr(shard, "dtype", "I8")),
    ),
    "a fragment in two dimensions": (
        INVALID,
        "expected [",
        lambda d: rewritten(
            d, lambda shard: shard.shapes.update({NORM: [1, len(shard.payloads[NORM])]})
        ),
    ),
    "a shard with bytes after its tensors": (
        INVALID,
        "is damaged",
        lambda d: first_shard(d).write_bytes(first_shard(d).read_bytes() + b"more"),
    ),
    "a header beyond all bounds": (
        INVALID,
        "expected at most 100000000",
        lambda d: _header_length(d, 100_000_001),
    ),
    "a pickle next to it": (INVALID, "can contain code", lambda d: (d / "state.pt").touch()),
    "a tensor that the base model lacks": (
        INVALID,
        "which the base model lacks",
        lambda d: _renamed(d, "model.ghost.weight"),
    ),
    "a fragment that is no zstd": (
        INVALID,
        "is not a zstd frame",
        lambda d: _payload(d, b"no frame at all, but text"),
    ),
    "a fragment without its length": (
        INVALID,
        "does not say how long it is decoded",
        lambda d: _payload(d, packed(bytes(NORM_BYTES), write_content_size=False)),
    ),
    "a fragment that is too short": (
        INVALID,
        "has 15 bytes decoded, expected 16",
        lambda d: _payload(d, packed(bytes(NORM_BYTES - 1))),
    ),
    "a bomb": (
        INVALID,
        "has 268435456 bytes decoded, expected 16",
        lambda d: _payload(d, packed(bytes(1 << 28))),
    ),
    "a bomb behind its frame": (
        INVALID,
        "has bytes after its end",
        lambda d: _payload(d, packed(bytes(NORM_BYTES)) + packed(bytes(1 << 28))),
    ),
    "bytes behind its frame": (
        INVALID,
        "cannot be decoded",
        lambda d: _payload(d, packed(bytes(NORM_BYTES)) + b"more"),
    ),
    "a frame that is cut off": (
        INVALID,
        "ends 6 bytes early",
        lambda d: _payload(d, packed(bytes(range(NORM_BYTES)))[:-6]),
    ),
    "a frame with a vast window": (
        INVALID,
        "expected at most 8388608",
        lambda d: _payload(d, _with_window(27)),
    ),
    "a place outside its tensor": (
        INVALID,
        "changes byte 16, expected less than 16",
        lambda d: _overwrite(d, [0, NORM_BYTES]),
    ),
    "places that do not ascend": (
        INVALID,
        "lists places that do not ascend",
        lambda d: _overwrite(d, [3, 1]),
    ),
    "a place twice": (
        INVALID,
        "lists places that do not ascend",
        lambda d: _overwrite(d, [3, 3]),
    ),
    "more places than bytes": (
        INVALID,
        "has 89 bytes decoded",
        lambda d: _overwrite(d, list(range(NORM_BYTES + 1))),
    ),
    "a wrong count of places": (INVALID, "ends", lambda d: _overwrite(d, [1, 2], 3)),
    "a smaller count of places": (
        INVALID,
        "has bytes after its end",
        lambda d: _overwrite(d, [1, 2], 1),
    ),
    "an overwrite called xor": (
        INVALID,
        "has 14 bytes decoded, expected 16",
        lambda d: _overwrite(d, [1, 2], encoding="xor"),
    ),
    "a flipped bit": (
        DIGEST,
        "expected",
        lambda d: rewritten(
            d, lambda shard: shard.payloads.update({NORM: packed(bytes([1] * NORM_BYTES))})
        ),
    ),
    "the checksum of another tensor": (
        DIGEST,
        "expected 00000000000000000000000000000000",
        lambda d: rewritten(d, lambda shard: shard.metadata.update({NORM: "0" * 32})),
    ),
}
"""Ways to spoil version 1: code, words of its message, and what is done."""


def _with_window(log: int) -> bytes:
    """Return a frame that says it needs a window of 2**log bytes, and how long it is decoded."""
    descriptor = 0b11 << 6
    window = (log - 10) << 3
    header = struct.pack("<IBBQ", 0xFD2FB528, descriptor, window, NORM_BYTES)
    return header + bytes([1, 0, 0])
