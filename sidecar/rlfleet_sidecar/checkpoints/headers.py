"""Reads the metadata of one directory's tensors: index, headers, configuration.

It must stay true that accepted content is complete: every header describes every byte of its
file, no tensor occurs twice, and an index agrees with its files.
"""

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rlfleet_contract.engine.safetensors import (
    LENGTH_BYTES,
    BadHeaderError,
    FileStamp,
    Tensor,
    UnsupportedDtypeError,
    header_length,
    parse_header,
)
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.checkpoints.folder import Folder, Location
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.state.required_tensors import HEAD, ROTARY

CONFIG = "config.json"
SUFFIX = ".safetensors"
_INDEX_SUFFIX = ".safetensors.index.json"
_MISTRAL = "consolidated"
_MODULE = ".py"
_EXECUTABLE = (".bin", ".pt", ".pth", ".pkl", ".pickle", _MODULE)
"""Files that can contain code."""
_TRAINER_STATE = re.compile(
    r"(optimizer|scheduler|sampler|dl_state_dict)(_\d+)?\.(pt|bin)|scaler\.pt"
    r"|pytorch_model_fsdp(_\d+)?\.bin|rng_state(_\d+)?\.pth|(random_states|custom_checkpoint)_\d+\.pkl"
    r"|training_args\.bin|zero_to_(fp32|torch)\.py|user_content\.pt|spk_dict\.pt"
)
"""Of these, what transformers' Trainer, Accelerate and DeepSpeed save with each checkpoint in
order to resume, on SageMaker an empty file, and the voices of Qwen2.5-Omni, without which
transformers loads no checkpoint of it. Nothing here or in the engine opens them. Only FSDP's hold
weights, those next to them once more."""
_ADAPTER = "lora_adapter"
"""verl's model_merger writes here what was trained, and the base model's weights next to it."""
_PEFT = "adapter_model"
_OF_PEFT = "remove it if the weights hold this adapter, else merge it first"
"""torchtune's LoRA recipes write an adapter next to weights that hold it; others need not."""
_OF_RANKS = (
    (r"model_world_size_\d+_rank_\d+\.pt", "python -m verl.model_merger merge"),
    (r"common\.pt", "Megatron-Bridge's export_ckpt, or verl.model_merger"),
    (r"pytorch_model_fsdp_\d+", "accelerate merge-weights"),
    (r".+\.distcp", "accelerate merge-weights, or torchtitan's convert_to_hf.py"),
    (r"zero_to_\w+\.py|global_step\d+", "zero_to_fp32.py --safe_serialization"),
)
"""What verl, Megatron, FSDP and DeepSpeed leave of a state that no rank holds whole, and what
gathers it."""
_NAMED = 4
_MAX_JSON_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Headers:
    """The headers and the configuration of one directory."""

    files: tuple[FileStamp, ...]
    tensors: dict[str, Tensor]
    config: dict[str, object]

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())


def refuse_code(folder: Folder, *, has_modules: bool = False) -> None:
    """Raise if a file of the directory can contain code, but for a trainer's own state.

    ``has_modules``: the base model's config names code, and save_pretrained copies its modules.
    """
    names = folder.names()
    for name in names:
        if _TRAINER_STATE.fullmatch(name) or (has_modules and name.endswith(_MODULE)):
            continue
        if name.lower().endswith(_EXECUTABLE):
            way_out = _gathering(names) or "remove it, and write safetensors"
            raise invalid(folder.path / name, f"can contain code; {way_out}")


def refuse_unmerged(folder: Folder) -> None:
    """Raise if a version holds its adapter apart: its weights are the ones before the training."""
    if _ADAPTER in folder.names():
        raise invalid(
            folder.path / _ADAPTER,
            "is an adapter that the weights next to it lack; merge it into them, or load it as an"
            " adapter, and remove it here",
        )


def content_of(folder: Folder, deadline: float) -> Headers:
    """Return the headers of a directory's checkpoint; raises SidecarError with their defect."""
    names = _of_one_model(folder)
    index = index_of(folder, names)
    shards = [name for name in names if name.endswith(SUFFIX)]
    if index is not None:
        shards = _indexed(folder, shards, index)
    if not shards:
        raise invalid(folder.path, _without_weights(names))
    files: list[FileStamp] = []
    tensors: dict[str, Tensor] = {}
    for name in shards:
        stamp, found = header_of(folder, name, deadline)
        files.append(stamp)
        for tensor in found:
            if tensor.name in tensors:
                raise invalid(
                    folder.path / name,
                    f"repeats tensor {tensor.name} of another file; write it once, and"
                    " consolidate files of single ranks",
                )
            _demand_in_place(folder, name, tensor, index)
            tensors[tensor.name] = tensor
    if index is not None and (lost := sorted(filter(_counts, index.keys() - tensors.keys()))):
        raise invalid(folder.path, f"lacks tensor {lost[0]} of its index; write both again")
    config = json_of(folder, CONFIG) if CONFIG in names else {}
    return Headers(tuple(files), tensors, config)


def _counts(name: str) -> bool:
    """Return whether a tensor that an index lists must be in a file.

    torchtune writes the base model's index again, and leaves out tables of rotations and a tied
    head. A head that is not tied is missing in the comparison with the base model.
    """
    return not (ROTARY.search(name) or HEAD.search(name))


def _without_weights(names: Sequence[str]) -> str:
    """Return what is wrong with a directory that holds only these names, and the way out."""
    what = f"contains no .safetensors file, but {', '.join(names[:_NAMED]) or 'nothing'}"
    more = ", …" if len(names) > _NAMED else ""
    way_out = _gathering(names) or (
        "write its weights as .safetensors files, or name the directory that has them in"
        " spec.weights.path"
    )
    return f"{what}{more}; {way_out}"


def _gathering(names: Sequence[str]) -> str | None:
    """Return how to gather parts of ranks, if a directory holds these and no whole weights."""
    if any(name.endswith(SUFFIX) for name in names):
        return None
    for pattern, tool in _OF_RANKS:
        if any(re.fullmatch(pattern, name) for name in names):
            return f"gather the ranks' parts with {tool}, and publish the result"
    return None


def _of_one_model(folder: Folder) -> list[str]:
    """Return a directory's names, of a base model without Mistral's second copy of it.

    A Hub repository of Mistral may hold the model twice, with transformers' names and with its
    own. vLLM boots from its own and loads both; a trainer writes those of transformers.
    """
    names = folder.names()
    others = [name for name in names if not name.startswith(_MISTRAL)]
    is_twice = any(name.startswith("model") and name.endswith(SUFFIX) for name in others)
    return others if folder.follow and is_twice else names


def _demand_in_place(
    folder: Folder, name: str, tensor: Tensor, index: Mapping[str, str] | None
) -> None:
    """Raise if the index lists the tensor in another file or in none."""
    if index is not None and (listed := index.get(tensor.name)) != name:
        raise invalid(
            folder.path / name,
            f"contains tensor {tensor.name}, which the index lists in {listed or 'no file'};"
            " write the index again",
        )


def _indexed(folder: Folder, shards: list[str], index: Mapping[str, str]) -> list[str]:
    """Return the files that the index lists; raises if one is missing or another exists."""
    named = set(index.values())
    if missing := sorted(named - set(shards)):
        raise invalid(folder.path, f"lacks file {missing[0]} of its index; write both again")
    # A Hub repository may hold a second copy of the model; vLLM follows the index too.
    if not folder.follow and (more := sorted(set(shards) - named)):
        way_out = _OF_PEFT if more[0].startswith(_PEFT) else "remove it, or list it"
        raise invalid(folder.path / more[0], f"is not listed in the index; {way_out}")
    return sorted(named)


def index_of(folder: Folder, names: list[str]) -> dict[str, str] | None:
    """Return the file of each tensor by a directory's index; None without one."""
    found = [name for name in names if name.endswith(_INDEX_SUFFIX)]
    if not found:
        return None
    if len(found) > 1:
        raise invalid(folder.path, f"contains several indexes ({', '.join(found[:3])}); keep one")
    weight_map = json_of(folder, found[0]).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise invalid(folder.path / found[0], "has no weight_map; write the index again")
    if not all(isinstance(shard, str) and "/" not in shard for shard in weight_map.values()):
        raise invalid(folder.path / found[0], "lists a file by its path; list names without /")
    return weight_map


def header_of(folder: Folder, name: str, deadline: float) -> tuple[FileStamp, tuple[Tensor, ...]]:
    """Return one file's stamp and tensors; raises SidecarError if its header is damaged."""
    if time.monotonic() > deadline:
        raise SidecarError(
            Code.CHECKPOINT_UNREADABLE,
            f"reading headers timed out at {folder.path / name}; check that the volume answers",
        )
    with folder.open(name) as reading:
        size = reading.stamp.size
        with damage_named(folder.path / name):
            length = header_length(reading.read(LENGTH_BYTES, 0), size)
            return reading.stamp, parse_header(reading.read(length, LENGTH_BYTES), size)


def json_of(folder: Folder, name: str) -> dict[str, object]:
    """Read one file that holds a JSON object."""
    return parsed(folder.path / name, bytes_of(folder, name))


def bytes_of(folder: Folder, name: str) -> bytes:
    """Read one small file."""
    with folder.open(name) as reading:
        if reading.stamp.size > _MAX_JSON_BYTES:
            raise invalid(
                folder.path / name,
                f"is too large ({reading.stamp.size} bytes, at most {_MAX_JSON_BYTES})",
            )
        try:
            return reading.read(reading.stamp.size, 0)
        except BadHeaderError as error:
            raise invalid(folder.path / name, f"is truncated: {error}") from error


def parsed(path: Location, data: bytes) -> dict[str, object]:
    """Read a JSON object."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise invalid(path, f"is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise invalid(path, "is not a JSON object")
    return found


@contextmanager
def damage_named(path: Location) -> Iterator[None]:
    """Turn a damage of this file into its error."""
    try:
        yield
    except UnsupportedDtypeError as error:
        raise invalid(path, f"is not loaded: {error}; save it in BF16, F16 or F32") from error
    except BadHeaderError as error:
        raise invalid(path, f"is damaged: {error}; write it again") from error


def invalid(path: Location, what: str) -> SidecarError:
    """Return the error for a defect of this file or directory."""
    return SidecarError(Code.CHECKPOINT_INVALID, f"{path} {what}")
