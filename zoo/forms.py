"""The forms in which trainers write a step, and what is wrong with some versions."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

_SHARDS = 3
META = {"format": "pt"}
_HEAD, _EMBEDDINGS = "lm_head.weight", "embed_tokens.weight"
_GATE_UP, _DOWN = ".experts.gate_up_proj", ".experts.down_proj"

Tensors = dict[str, Any]
Write = Callable[[Path], None]


def tensors_of(at: Path) -> Tensors:
    """Read all tensors of a checkpoint."""
    found: Tensors = {}
    for path in sorted(at.glob("*.safetensors")):
        found |= load_file(path)
    return found


def turn(at: Path) -> None:
    """Give fused experts the layout of the Hub's files, in which transformers 5 writes none."""
    tensors = tensors_of(at)
    fused = [name for name in tensors if name.endswith((_GATE_UP, _DOWN))]
    turned = {name: tensors[name].transpose(1, 2).contiguous() for name in fused}
    save_file(tensors | turned, at / "model.safetensors", META)


def add_drafter(at: Path, seed: int) -> None:
    """Add a layer that proposes the next token but one, as DeepSeek and GLM write it.

    Transformers makes none.
    """
    config = json.loads((at / "config.json").read_text())
    layers, width = config["num_hidden_layers"], config["hidden_size"]
    last, new = f"model.layers.{layers - 1}.", f"model.layers.{layers}."
    tensors = tensors_of(at)
    random = torch.Generator().manual_seed(seed)
    made = {
        name.replace(last, new): tensor.roll(1)
        for name, tensor in tensors.items()
        if name.startswith(last)
    }
    for norm in ("enorm", "hnorm", "shared_head.norm"):
        made[f"{new}{norm}.weight"] = torch.rand(width, generator=random).to(torch.bfloat16)
    joined = torch.randn(width, 2 * width, generator=random) / width
    made |= {
        f"{new}eh_proj.weight": joined.to(torch.bfloat16),
        f"{new}shared_head.head.weight": tensors["lm_head.weight"].clone(),
        f"{new}embed_tokens.weight": tensors["model.embed_tokens.weight"].clone(),
    }
    save_file(tensors | made, at / "model.safetensors", META)
    (at / "config.json").write_text(json.dumps(config | {"num_nextn_predict_layers": 1}))


def say_tied(at: Path) -> None:
    """Say that the head is tied to the embeddings, though the files have a head of its own."""
    config = json.loads((at / "config.json").read_text())
    (at / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))


def name_twice(at: Path) -> None:
    """Save a tied tensor under the head's name too, as many of the Hub's files do."""
    tensors = tensors_of(at)
    tensors[_HEAD] = next(
        one for name, one in tensors.items() if name.endswith(_EMBEDDINGS)
    ).clone()
    save_file(tensors, at / "model.safetensors", META)


def with_equal_head(base: Path, at: Path) -> None:
    """Write the base with a head that equals the embeddings."""
    tensors = tensors_of(base)
    bare(tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"].clone()}, at)


def rename(at: Path, heads: Mapping[str, str]) -> None:
    """Give tensors the names of the Hub's files, by the heads of names that transformers writes."""

    def named(name: str) -> str:
        head = next((head for head in heads if name.startswith(head)), "")
        return heads.get(head, "") + name.removeprefix(head)

    tensors = {named(name): tensor for name, tensor in tensors_of(at).items()}
    save_file(tensors, at / "model.safetensors", META)


def forms(step: Path, state: Tensors) -> Mapping[str, Write]:
    """Return how a step is written in each form that it has, by the form's name.

    ``state`` is transformers' own state dict of it: what a trainer holds.
    """
    files = tensors_of(step)
    found: dict[str, Write] = {
        "save_pretrained": lambda at: _saved(step, at),
        "sharded": lambda at: _sharded(files, at),
        "bare": lambda at: bare(files, at),
    }
    if _shapes(state) != _shapes(files):
        found["state_dict"] = lambda at: bare(state, at)
    if _HEAD in files and is_tied(step):
        found["one_name"] = lambda at: bare({n: t for n, t in files.items() if n != _HEAD}, at)
    single = _one_by_one(state)
    if any(name.endswith(_GATE_UP) for name in files.keys() - single.keys()):
        found["one_by_one"] = lambda at: bare(single, at)
    return found


def is_tied(at: Path) -> bool:
    """Return whether head and embeddings are one tensor, by the config and by the files."""
    tensors = tensors_of(at)
    same = (one for name, one in tensors.items() if name.endswith(_EMBEDDINGS))
    is_said = json.loads((at / "config.json").read_text()).get("tie_word_embeddings")
    return bool(is_said) and any(torch.equal(one, tensors[_HEAD]) for one in same)


def _shapes(tensors: Tensors) -> dict[str, Any]:
    return {name: tensor.shape for name, tensor in tensors.items()}


def _saved(step: Path, at: Path) -> None:
    """As save_pretrained writes it, config.json and all."""
    shutil.copytree(step, at)


def _sharded(tensors: Tensors, at: Path) -> None:
    """In shards with an index, without a config."""
    at.mkdir()
    parts = [sorted(tensors)[place::_SHARDS] for place in range(_SHARDS)]
    files = [f"model-{n + 1:05}-of-{len(parts):05}.safetensors" for n in range(len(parts))]
    where: dict[str, str] = {}
    for file, names in zip(files, parts, strict=True):
        save_file({name: tensors[name] for name in names}, at / file, META)
        where |= dict.fromkeys(names, file)
    index = {"metadata": {}, "weight_map": where}
    (at / "model.safetensors.index.json").write_text(json.dumps(index))


def bare(tensors: Tensors, at: Path) -> None:
    """Weights alone in one file, with neither config nor index: as prime-rl does."""
    at.mkdir()
    save_file(tensors, at / "model.safetensors", META)


def _one_by_one(state: Tensors) -> Tensors:
    """Take fused experts apart; those with biases have gate and up interleaved, and stay."""
    made: Tensors = {}
    for name, tensor in state.items():
        if f"{name}_bias" in state or not name.endswith((_GATE_UP, _DOWN)):
            made[name] = tensor
            continue
        stem, _, last = name.rpartition(".")
        parts = ("gate_proj", "up_proj") if name.endswith(_GATE_UP) else (last,)
        for number, expert in enumerate(tensor):
            for part, piece in zip(parts, expert.chunk(len(parts)), strict=True):
                made[f"{stem}.{number}.{part}.weight"] = piece.clone()
    return made


def _missing(tensors: Tensors, name: str) -> None:
    del tensors[name]


def _misshapen(tensors: Tensors, name: str) -> None:
    tensors[name] = torch.zeros(3, 5, dtype=torch.bfloat16)


DEFECTS: dict[str, Callable[[Tensors, str], None]] = {
    "a tensor is missing": _missing,
    "another shape": _misshapen,
}


def spoilt(step: Path, at: Path, defect: str, name: str) -> None:
    """Write a version with one defect in one tensor."""
    at.mkdir()
    tensors = tensors_of(step)
    DEFECTS[defect](tensors, name)
    save_file(tensors, at / "model.safetensors", META)
