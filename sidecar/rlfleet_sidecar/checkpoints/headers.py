"""What the files of one directory say of the tensors in them: index, headers, configuration.

It must stay true that what passes here is whole: every file's header accounts for every
byte, no tensor is there twice, and an index and its files say the same.
"""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rlfleet_contract.engine.safetensors import (
    LENGTH_BYTES,
    BadHeaderError,
    FileStamp,
    Tensor,
    header_length,
    parse_header,
)
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.checkpoints.safe_paths import Folder, Reading
from rlfleet_sidecar.errors import SidecarError

CONFIG = "config.json"
_SUFFIX = ".safetensors"
_INDEX_SUFFIX = ".safetensors.index.json"
_EXECUTABLE = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".py")
"""Formats that can hold code, and code."""
_MAX_JSON_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Content:
    """What the headers and the configuration of one directory say."""

    files: tuple[FileStamp, ...]
    tensors: dict[str, Tensor]
    config: dict[str, object]

    @property
    def nbytes(self) -> int:
        """Tell the bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())


def refuse_code(folder: Folder) -> None:
    """See that nothing in the directory can hold code."""
    for name in folder.names():
        if name.lower().endswith(_EXECUTABLE):
            raise invalid(folder.path / name, "can hold code; a version holds safetensors only")


def content_of(folder: Folder, deadline: float) -> Content:
    """Read the headers of a directory's checkpoint; raises what is wrong with them."""
    names = folder.names()
    index = _index(folder, names)
    shards = [name for name in names if name.endswith(_SUFFIX)]
    if index is not None:
        shards = _indexed(folder, shards, index)
    if not shards:
        raise invalid(folder.path, "holds no .safetensors file")
    files: list[FileStamp] = []
    tensors: dict[str, Tensor] = {}
    for name in shards:
        stamp, found = header_of(folder, name, deadline)
        files.append(stamp)
        for tensor in found:
            if tensor.name in tensors:
                raise invalid(folder.path / name, f"holds {tensor.name} a second time")
            _demand_in_place(folder, name, tensor, index)
            tensors[tensor.name] = tensor
    if index is not None and (lost := sorted(index.keys() - tensors.keys())):
        raise invalid(folder.path, f"has an index that names {lost[0]}, and no file holds it")
    config = json_of(folder, CONFIG) if CONFIG in names else {}
    return Content(tuple(files), tensors, config)


def _demand_in_place(
    folder: Folder, name: str, tensor: Tensor, index: Mapping[str, str] | None
) -> None:
    """See that a file holds no tensor that the index, if there is one, puts elsewhere."""
    if index is not None and index.get(tensor.name) != name:
        raise invalid(folder.path / name, f"holds {tensor.name}, which the index puts elsewhere")


def _indexed(folder: Folder, shards: list[str], index: Mapping[str, str]) -> list[str]:
    """Tell the files that the index names; each must be there, and be the only ones."""
    named = set(index.values())
    if missing := sorted(named - set(shards)):
        raise invalid(folder.path, f"has an index that names {missing[0]}, which is not there")
    # A Hub repository may hold a second copy of the model; vLLM follows the index too.
    if not folder.follow and (more := sorted(set(shards) - named)):
        raise invalid(folder.path / more[0], "is not named by the index beside it")
    return sorted(named)


def _index(folder: Folder, names: list[str]) -> dict[str, str] | None:
    found = [name for name in names if name.endswith(_INDEX_SUFFIX)]
    if not found:
        return None
    if len(found) > 1:
        raise invalid(folder.path, f"holds more than one index ({', '.join(found[:3])})")
    weight_map = json_of(folder, found[0]).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise invalid(folder.path / found[0], "has no weight_map")
    if not all(isinstance(shard, str) and "/" not in shard for shard in weight_map.values()):
        raise invalid(folder.path / found[0], "names a shard by a path")
    return weight_map


def header_of(folder: Folder, name: str, deadline: float) -> tuple[FileStamp, tuple[Tensor, ...]]:
    """Read one file's header; raises what is wrong with it."""
    if time.monotonic() > deadline:
        raise SidecarError(
            Code.CHECKPOINT_UNREADABLE, f"reading headers took too long, last {folder.path / name}"
        )
    with folder.open(name) as reading:
        size = reading.stamp.size
        try:
            length = header_length(read(reading, LENGTH_BYTES, 0), size)
            return reading.stamp, parse_header(read(reading, length, LENGTH_BYTES), size)
        except BadHeaderError as error:
            raise invalid(folder.path / name, f"is damaged: {error}") from error


def read(reading: Reading, length: int, offset: int) -> bytes:
    """Read exactly so many bytes of a file."""
    data = b""
    while len(data) < length:
        piece = os.pread(reading.descriptor, length - len(data), offset + len(data))
        if not piece:
            raise BadHeaderError(f"it ends after {offset + len(data)} bytes")
        data += piece
    return data


def json_of(folder: Folder, name: str) -> dict[str, object]:
    """Read one file that holds a JSON object."""
    return parsed(folder.path / name, bytes_of(folder, name))


def bytes_of(folder: Folder, name: str) -> bytes:
    """Read one file that is small."""
    with folder.open(name) as reading:
        if reading.stamp.size > _MAX_JSON_BYTES:
            raise invalid(folder.path / name, f"has {reading.stamp.size} bytes")
        try:
            return read(reading, reading.stamp.size, 0)
        except BadHeaderError as error:
            raise invalid(folder.path / name, f"is cut: {error}") from error


def parsed(path: Path, data: bytes) -> dict[str, object]:
    """Read a JSON object."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise invalid(path, f"is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise invalid(path, "is not a JSON object")
    return found


def invalid(path: Path, what: str) -> SidecarError:
    """Make the error of a file or directory that is not as it has to be."""
    return SidecarError(Code.CHECKPOINT_INVALID, f"{path} {what}")
