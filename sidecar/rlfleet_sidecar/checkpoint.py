"""Is this version whole and loadable? Asked of headers alone, before anything is paused.

vLLM accepts some bad checkpoints silently and dies of the others, so it must stay true
that what passes here holds exactly the boot model's tensors, in safetensors files whose
headers account for every byte. No tensor is read: the cost is the headers'.
"""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rlfleet_contract.api import BASE_VERSION
from rlfleet_contract.problems import Code
from rlfleet_contract.tensors import (
    LENGTH_BYTES,
    BadHeaderError,
    FileStamp,
    Tensor,
    header_length,
    parse_header,
)
from rlfleet_sidecar import likeness
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.place import Folder, Layout, Reading, open_model
from rlfleet_sidecar.settings import Settings

_SUFFIX = ".safetensors"
_INDEX_SUFFIX = ".safetensors.index.json"
_CONFIG = "config.json"
_FINISHED = ".finished"
_STARTED = ".sender_ready"
"""prime-rl's marks: the directory is written anew between the second and the first."""
_EXECUTABLE = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".py")
"""Formats that can hold code, and code."""
_MAX_JSON_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A version that was checked, and exactly which files it is."""

    version: str
    directory: Path
    files: tuple[FileStamp, ...]
    tensors: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class _Content:
    """What the headers and the configuration of one directory say."""

    files: tuple[FileStamp, ...]
    tensors: dict[str, Tensor]
    config: dict[str, object]


class Checkpoints:
    """Checks versions against the model that the engine boots with. Blocking: use a thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._layout = Layout.of(settings.weights_path)
        self._model: _Content | None = None

    def check(self, version: str, limit_s: float | None = None) -> Checkpoint:
        """Find the version and check it; raises what is wrong and what to do."""
        deadline = time.monotonic() + (limit_s or self._settings.check_s)
        model = self._boot_model(deadline)
        if version == BASE_VERSION:
            return _checkpoint(version, self._settings.model_path, model)
        with self._layout.open(version, self._settings.engine_uid) as folders:
            self._demand_complete(folders)
            folder = folders[-1]
            _refuse_code(folder)
            found = _content(folder, deadline)
        _compare(folder.path, model, found)
        return _checkpoint(version, folder.path, found)

    def check_unchanged(self, checkpoint: Checkpoint) -> None:
        """See that a checked version still is what was checked; no header is read."""
        if checkpoint.version == BASE_VERSION:
            with open_model(self._settings.model_path) as folder:
                _demand_same(folder, checkpoint)
            return
        with self._layout.open(checkpoint.version, self._settings.engine_uid) as folders:
            _demand_same(folders[-1], checkpoint)

    def vocabulary(self) -> int:
        """Tell how many tokens the model knows."""
        config = self._boot_model(time.monotonic() + self._settings.check_s).config
        text = config.get("text_config")
        for place in (config, text if isinstance(text, dict) else {}):
            size = place.get("vocab_size")
            if isinstance(size, int) and size > 0:
                return size
        raise SidecarError(
            Code.CHECKPOINT_INVALID, f"{self._settings.model_path / _CONFIG} has no vocab_size"
        )

    def _boot_model(self, deadline: float) -> _Content:
        """Read the boot model's headers once: it does not change while the pod lives."""
        if self._model is None:
            with open_model(self._settings.model_path) as folder:
                self._model = _content(folder, deadline)
        return self._model

    def _demand_complete(self, folders: tuple[Folder, ...]) -> None:
        """Look for a marker beside the weights or in a directory of the version above them."""
        markers = self._settings.markers
        if not markers or any(_is_marked(folder, name) for folder in folders for name in markers):
            return
        for folder in folders:
            if _FINISHED in markers and folder.modified_ns(_FINISHED) is not None:
                raise SidecarError(
                    Code.CHECKPOINT_INCOMPLETE,
                    f"{folder.path / _FINISHED} is older than {_STARTED}: the version is being"
                    " written again",
                )
        raise SidecarError(
            Code.CHECKPOINT_INCOMPLETE,
            f"{folders[-1].path} has no marker {' or '.join(markers)}: it is still being"
            " written, or its writer leaves none",
        )


def _is_marked(folder: Folder, name: str) -> bool:
    finished = folder.modified_ns(name)
    started = folder.modified_ns(_STARTED) if name == _FINISHED else None
    return finished is not None and (started is None or finished >= started)


def _checkpoint(version: str, directory: Path, content: _Content) -> Checkpoint:
    nbytes = sum(tensor.nbytes for tensor in content.tensors.values())
    return Checkpoint(version, directory, content.files, len(content.tensors), nbytes)


def _refuse_code(folder: Folder) -> None:
    for name in folder.names():
        if name.lower().endswith(_EXECUTABLE):
            raise _invalid(folder.path / name, "can hold code; a version holds safetensors only")


def _content(folder: Folder, deadline: float) -> _Content:
    names = folder.names()
    index = _index(folder, names)
    shards = [name for name in names if name.endswith(_SUFFIX)]
    if index is not None:
        shards = _indexed(folder, shards, index)
    if not shards:
        raise _invalid(folder.path, "holds no .safetensors file")
    files: list[FileStamp] = []
    tensors: dict[str, Tensor] = {}
    for name in shards:
        stamp, found = _header(folder, name, deadline)
        files.append(stamp)
        for tensor in found:
            if tensor.name in tensors:
                raise _invalid(folder.path / name, f"holds {tensor.name} a second time")
            if index is not None and index.get(tensor.name) != name:
                raise _invalid(
                    folder.path / name, f"holds {tensor.name}, which the index puts elsewhere"
                )
            tensors[tensor.name] = tensor
    if index is not None and (lost := sorted(index.keys() - tensors.keys())):
        raise _invalid(folder.path, f"has an index that names {lost[0]}, and no file holds it")
    config = _json(folder, _CONFIG) if _CONFIG in names else {}
    return _Content(tuple(files), tensors, config)


def _indexed(folder: Folder, shards: list[str], index: Mapping[str, str]) -> list[str]:
    """Tell the files that the index names; each must be there, and be the only ones."""
    named = set(index.values())
    if missing := sorted(named - set(shards)):
        raise _invalid(folder.path, f"has an index that names {missing[0]}, which is not there")
    # A Hub repository may hold a second copy of the model; vLLM follows the index too.
    if not folder.follow and (more := sorted(set(shards) - named)):
        raise _invalid(folder.path / more[0], "is not named by the index beside it")
    return sorted(named)


def _index(folder: Folder, names: list[str]) -> dict[str, str] | None:
    found = [name for name in names if name.endswith(_INDEX_SUFFIX)]
    if not found:
        return None
    if len(found) > 1:
        raise _invalid(folder.path, f"holds more than one index ({', '.join(found[:3])})")
    weight_map = _json(folder, found[0]).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise _invalid(folder.path / found[0], "has no weight_map")
    if not all(isinstance(shard, str) and "/" not in shard for shard in weight_map.values()):
        raise _invalid(folder.path / found[0], "names a shard by a path")
    return weight_map


def _header(folder: Folder, name: str, deadline: float) -> tuple[FileStamp, tuple[Tensor, ...]]:
    if time.monotonic() > deadline:
        raise SidecarError(
            Code.CHECKPOINT_UNREADABLE, f"reading headers took too long, last {folder.path / name}"
        )
    with folder.open(name) as reading:
        size = reading.stamp.size
        try:
            length = header_length(_read(reading, LENGTH_BYTES, 0), size)
            return reading.stamp, parse_header(_read(reading, length, LENGTH_BYTES), size)
        except BadHeaderError as error:
            raise _invalid(folder.path / name, f"is damaged: {error}") from error


def _read(reading: Reading, length: int, offset: int) -> bytes:
    data = b""
    while len(data) < length:
        piece = os.pread(reading.descriptor, length - len(data), offset + len(data))
        if not piece:
            raise BadHeaderError(f"it ends after {offset + len(data)} bytes")
        data += piece
    return data


def _json(folder: Folder, name: str) -> dict[str, object]:
    with folder.open(name) as reading:
        if reading.stamp.size > _MAX_JSON_BYTES:
            raise _invalid(folder.path / name, f"has {reading.stamp.size} bytes")
        try:
            parsed = json.loads(_read(reading, reading.stamp.size, 0))
        except (ValueError, RecursionError) as error:
            raise _invalid(folder.path / name, f"is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise _invalid(folder.path / name, "is not a JSON object")
    return parsed


def _compare(path: Path, model: _Content, found: _Content) -> None:
    tied = model.config.get("tie_word_embeddings") is True
    told = likeness.differences(model.tensors, found.tensors, tied=tied)
    if told is not None:
        raise _invalid(path, f"is not a checkpoint of the boot model: {told}")
    told = likeness.config_differences(model.config, found.config)
    if told is not None:
        raise _invalid(path / _CONFIG, f"does not go with the boot model: {told}")


def _demand_same(folder: Folder, checkpoint: Checkpoint) -> None:
    for stamp in checkpoint.files:
        with folder.open(stamp.name) as reading:
            if reading.stamp != stamp:
                raise _invalid(
                    folder.path / stamp.name,
                    "was written again after it was checked: a version's directory must not"
                    " change; prepare it anew",
                )


def _invalid(path: Path, what: str) -> SidecarError:
    return SidecarError(Code.CHECKPOINT_INVALID, f"{path} {what}")
