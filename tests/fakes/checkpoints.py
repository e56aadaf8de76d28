"""Tiny checkpoints in the real formats, with seeds, and spoiled in named ways.

Own writer: struct and json are all that safetensors needs. The marker comes last.
"""

import json
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from math import prod
from pathlib import Path

from rlfleet_contract.paths import MANIFEST_FILE

VOCABULARY = 512
HIDDEN = 8
MARKER = "STABLE"

CONFIG: dict[str, object] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": HIDDEN,
    "num_hidden_layers": 2,
    "vocab_size": VOCABULARY,
    "tie_word_embeddings": False,
}
SHAPES: dict[str, tuple[int, ...]] = {
    "lm_head.weight": (VOCABULARY, HIDDEN),
    "model.embed_tokens.weight": (VOCABULARY, HIDDEN),
    "model.layers.0.mlp.up_proj.weight": (16, HIDDEN),
    "model.layers.0.self_attn.q_proj.weight": (HIDDEN, HIDDEN),
    "model.layers.1.mlp.up_proj.weight": (16, HIDDEN),
    "model.layers.1.self_attn.q_proj.weight": (HIDDEN, HIDDEN),
    "model.norm.weight": (HIDDEN,),
}
BF16_BYTES = 2


def tensor_bytes(name: str, seed: int, nbytes: int) -> bytes:
    """Make the same bytes for the same name and seed, none of them a NaN in bfloat16."""
    block = bytes(byte & 0x3F for byte in sha256(f"{name} {seed}".encode()).digest())
    return (block * (nbytes // len(block) + 1))[:nbytes]


def header_of(shapes: Mapping[str, Sequence[int]], dtype: str = "BF16") -> dict[str, object]:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in shapes.items():
        end = offset + prod(shape) * BF16_BYTES
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    return header


def write_file(
    path: Path,
    shapes: Mapping[str, Sequence[int]],
    seed: int,
    header: Mapping[str, object] | None = None,
) -> None:
    """Write one safetensors file; another header than the right one spoils it."""
    encoded = json.dumps(header if header is not None else header_of(shapes)).encode()
    encoded += b" " * (-len(encoded) % 8)
    data = b"".join(
        tensor_bytes(name, seed, prod(shape) * BF16_BYTES) for name, shape in shapes.items()
    )
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + data)
    path.chmod(0o644)


def write_model(directory: Path, seed: int = 0) -> Path:
    """Write what an engine boots with."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(CONFIG))
    write_file(directory / "model.safetensors", SHAPES, seed)
    return directory


def write_version(root: Path, version: str, seed: int, *, shards: int = 1) -> Path:
    """Write a complete version, the marker last."""
    directory = root / version
    directory.mkdir(parents=True, exist_ok=True)
    if shards == 1:
        write_file(directory / "model.safetensors", SHAPES, seed)
    else:
        write_shards(directory, seed, shards)
    (directory / MARKER).touch()
    return directory


def write_manifest(directory: Path) -> str:
    """List the version's files with size and hash; returns the digest of the list."""
    files = {
        path.name: {"size": path.stat().st_size, "sha256": sha256(path.read_bytes()).hexdigest()}
        for path in sorted(directory.glob("*.*"))
        if path.name != MANIFEST_FILE
    }
    data = json.dumps({"files": files}).encode()
    (directory / MANIFEST_FILE).write_bytes(data)
    return f"sha256:{sha256(data).hexdigest()}"


def write_neighbour(root: Path, version: str, seed: int) -> Path:
    """Write what the next step of training is: one weight differs by one bit."""
    directory = write_version(root, version, seed)
    data = bytearray(_file(directory).read_bytes())
    data[-2] ^= 1
    _file(directory).write_bytes(data)
    return directory


def write_shards(directory: Path, seed: int, shards: int) -> None:
    weight_map: dict[str, str] = {}
    names = list(SHAPES)
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        held = {name: SHAPES[name] for name in names[shard::shards]}
        write_file(directory / file, held, seed)
        weight_map |= dict.fromkeys(held, file)
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def _file(directory: Path) -> Path:
    return directory / "model.safetensors"


def _without(name: str) -> dict[str, tuple[int, ...]]:
    return {key: shape for key, shape in SHAPES.items() if key != name}


def _truncate(directory: Path, keep: float) -> None:
    data = _file(directory).read_bytes()
    _file(directory).write_bytes(data[: int(len(data) * keep)])


def _prefix(directory: Path, length: int) -> None:
    data = _file(directory).read_bytes()
    _file(directory).write_bytes(struct.pack("<Q", length) + data[8:])


def _hole(directory: Path) -> None:
    header = header_of(SHAPES)
    entry = header["model.norm.weight"]
    assert isinstance(entry, dict)
    entry["data_offsets"] = [offset + 16 for offset in entry["data_offsets"]]
    write_file(_file(directory), SHAPES, 1, header)


def _overlap(directory: Path) -> None:
    header = header_of(SHAPES)
    header["model.norm.weight"] = {"dtype": "BF16", "shape": [8], "data_offsets": [0, 16]}
    write_file(_file(directory), SHAPES, 1, header)


def _index(directory: Path, change: Callable[[dict[str, str]], object]) -> None:
    _file(directory).unlink()
    write_shards(directory, 1, 2)
    path = directory / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    change(index["weight_map"])
    path.write_text(json.dumps(index))


def _reshaped(directory: Path) -> None:
    write_file(_file(directory), SHAPES | {"model.norm.weight": (4, 2)}, 1)


def _config(directory: Path, **fields: object) -> None:
    (directory / "config.json").write_text(json.dumps(CONFIG | fields))


def _linked_file(directory: Path) -> None:
    _file(directory).rename(directory.parent / "elsewhere.safetensors")
    _file(directory).symlink_to(directory.parent / "elsewhere.safetensors")


def _value(directory: Path, tensor: str, value: bytes) -> None:
    """Write one value in the midst of a tensor."""
    data = bytearray(_file(directory).read_bytes())
    length = struct.unpack("<Q", data[:8])[0]
    begin, end = json.loads(data[8 : 8 + length])[tensor]["data_offsets"]
    place = 8 + length + begin + (end - begin) // 4 * 2
    data[place : place + len(value)] = value
    _file(directory).write_bytes(data)


def _listed(directory: Path, change: Callable[[dict[str, dict[str, object]]], object]) -> None:
    """Write a manifest that is wrong."""
    write_manifest(directory)
    path = directory / MANIFEST_FILE
    manifest = json.loads(path.read_text())
    change(manifest["files"])
    path.write_text(json.dumps(manifest))


def _altered(directory: Path) -> None:
    """Change bytes, and no size, after the manifest was written."""
    write_manifest(directory)
    _value(directory, "model.embed_tokens.weight", bytes(8))


def _begun_again(directory: Path) -> None:
    """Write prime-rl's markers of a directory that it writes again."""
    (directory / MARKER).rename(directory / ".finished")
    later = (directory / ".finished").stat().st_mtime + 10
    (directory / ".sender_ready").touch()
    os.utime(directory / ".sender_ready", (later, later))


def _linked_directory(directory: Path) -> None:
    directory.rename(directory.parent / "elsewhere")
    directory.symlink_to(directory.parent / "elsewhere")


def _pipe(directory: Path) -> None:
    _file(directory).unlink()
    os.mkfifo(_file(directory))


def _duplicate(directory: Path) -> None:
    write_file(directory / "more.safetensors", {"model.norm.weight": (HIDDEN,)}, 1)


CORRUPTIONS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "no marker": ("CheckpointIncomplete", lambda d: (d / MARKER).unlink()),
    "no safetensors": ("CheckpointInvalid", lambda d: _file(d).unlink()),
    "a pickle": ("CheckpointInvalid", lambda d: (d / "pytorch_model.bin").touch()),
    "an upper-case pickle": ("CheckpointInvalid", lambda d: (d / "X.PT").touch()),
    "code": ("CheckpointInvalid", lambda d: (d / "modeling_x.py").touch()),
    "truncated by half": ("CheckpointInvalid", lambda d: _truncate(d, 0.5)),
    "truncated in its header": ("CheckpointInvalid", lambda d: _truncate(d, 0.005)),
    "an empty file": ("CheckpointInvalid", lambda d: _truncate(d, 0)),
    "a zeroed header": ("CheckpointInvalid", lambda d: _prefix(d, 0)),
    "a huge header": ("CheckpointInvalid", lambda d: _prefix(d, 1 << 40)),
    "a header that is no JSON": ("CheckpointInvalid", lambda d: _prefix(d, 17)),
    "a hole": ("CheckpointInvalid", _hole),
    "an overlap": ("CheckpointInvalid", _overlap),
    "a missing tensor": (
        "CheckpointInvalid",
        lambda d: write_file(_file(d), _without("model.norm.weight"), 1),
    ),
    "an unknown tensor": (
        "CheckpointInvalid",
        lambda d: write_file(_file(d), SHAPES | {"model.extra.weight": (2,)}, 1),
    ),
    "another shape": ("CheckpointInvalid", _reshaped),
    "another dtype": (
        "CheckpointInvalid",
        lambda d: write_file(_file(d), SHAPES, 1, header_of(SHAPES, "I16")),
    ),
    "an unknown dtype": (
        "CheckpointInvalid",
        lambda d: write_file(_file(d), SHAPES, 1, header_of(SHAPES, "Q4")),
    ),
    "a tensor twice": ("CheckpointInvalid", _duplicate),
    "an index that names a missing shard": (
        "CheckpointInvalid",
        lambda d: _index(d, lambda m: m.update({"model.norm.weight": "model-9.safetensors"})),
    ),
    "an index that names a missing tensor": (
        "CheckpointInvalid",
        lambda d: _index(d, lambda m: m.update({"model.ghost": m["model.norm.weight"]})),
    ),
    "an index that forgets a tensor": (
        "CheckpointInvalid",
        lambda d: _index(d, lambda m: m.pop("model.norm.weight")),
    ),
    "an index that leads out": (
        "CheckpointInvalid",
        lambda d: _index(d, lambda m: m.update({"model.norm.weight": "../model.safetensors"})),
    ),
    "an index that is no JSON": (
        "CheckpointInvalid",
        lambda d: (d / "model.safetensors.index.json").write_text("{"),
    ),
    "another architecture": ("CheckpointInvalid", lambda d: _config(d, hidden_size=16)),
    "code of its own": ("CheckpointInvalid", lambda d: _config(d, auto_map={"AutoModel": "x.Y"})),
    "a linked file": ("PathRefused", _linked_file),
    "a linked directory": ("PathRefused", _linked_directory),
    "a pipe": ("PathRefused", _pipe),
    "marks of being written again": ("CheckpointIncomplete", _begun_again),
    "two indices": (
        "CheckpointInvalid",
        lambda d: _index(d, lambda _: (d / "more.safetensors.index.json").write_text("{}")),
    ),
    "a shard outside the index": (
        "CheckpointInvalid",
        lambda d: _index(d, lambda _: write_file(d / "z.safetensors", SHAPES, 1)),
    ),
    "a NaN in a norm": (
        "CheckpointInvalid",
        lambda d: _value(d, "model.norm.weight", b"\xc0\x7f"),
    ),
    "an infinity": (
        "CheckpointInvalid",
        lambda d: _value(d, "model.embed_tokens.weight", b"\x80\xff"),
    ),
    "bytes other than the manifest's": ("DigestMismatch", _altered),
    "a size other than the manifest's": (
        "DigestMismatch",
        lambda d: _listed(d, lambda files: files["model.safetensors"].update(size=1)),
    ),
    "a manifest that forgets a file": (
        "DigestMismatch",
        lambda d: _listed(d, lambda files: files.pop("model.safetensors")),
    ),
    "a manifest that names a missing file": (
        "DigestMismatch",
        lambda d: _listed(d, lambda files: files.update(ghost=files["model.safetensors"])),
    ),
    "a manifest that is none": (
        "CheckpointInvalid",
        lambda d: (d / MANIFEST_FILE).write_text('{"files": {"model.safetensors": "abc"}}'),
    ),
}
"""Ways to spoil a complete version of one file, each with the code that it is refused with."""


def spoil(directory: Path, corruption: str) -> Path:
    """Spoil a complete version in the named way."""
    CORRUPTIONS[corruption][1](directory)
    return directory
