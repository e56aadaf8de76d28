"""Makes a model's files, in the forms in which trainers write them, and spoils some."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
import yaml
from safetensors.torch import load_file, save_file

from zoo import processor

TABLE: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("models.yaml").read_text())
MODELS: Mapping[str, Mapping[str, Any]] = TABLE["models"]
_SPREAD = 0.02
_SHARDS = 3
_META = {"format": "pt"}


def config_of(entry: Mapping[str, Any]) -> Any:
    """Return a model's configuration."""
    arguments = (
        dict(entry["alone"]) if "alone" in entry else TABLE["common"] | entry.get("with", {})
    )
    if "text" in entry:
        arguments["text_config"] = config_of(entry["text"]).to_dict()
    return getattr(transformers, entry["config"])(**arguments)


def base(name: str, seed: int, at: Path) -> Path:
    """Write a random model whose every tensor has content of its own, as transformers saves it."""
    entry = MODELS[name]
    kind = "AutoModelForImageTextToText" if "text" in entry else "AutoModelForCausalLM"
    torch.manual_seed(seed)
    model = getattr(transformers, kind).from_config(config_of(entry))
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(torch.randn_like(tensor) * _SPREAD)
    model.to(torch.bfloat16).save_pretrained(at)
    if "text" in entry:
        processor.write(at, model.config.model_type)
    return at


def tensors_of(at: Path) -> dict[str, Any]:
    """Read all tensors of a checkpoint."""
    found: dict[str, Any] = {}
    for path in sorted(at.glob("*.safetensors")):
        found |= load_file(path)
    return found


def _saved(step: Path, at: Path) -> None:
    """As save_pretrained writes it, config.json and all."""
    shutil.copytree(step, at)


def _sharded(step: Path, at: Path) -> None:
    """In shards with an index, without a config."""
    at.mkdir()
    tensors = tensors_of(step)
    parts = [sorted(tensors)[place::_SHARDS] for place in range(_SHARDS)]
    files = [f"model-{n + 1:05}-of-{len(parts):05}.safetensors" for n in range(len(parts))]
    where: dict[str, str] = {}
    for file, names in zip(files, parts, strict=True):
        save_file({name: tensors[name] for name in names}, at / file, _META)
        where |= dict.fromkeys(names, file)
    index = {"metadata": {}, "weight_map": where}
    (at / "model.safetensors.index.json").write_text(json.dumps(index))


def _bare(step: Path, at: Path) -> None:
    """Weights alone in one file, with neither config nor index: as prime-rl does."""
    at.mkdir()
    save_file(tensors_of(step), at / "model.safetensors", _META)


FORMS: dict[str, Callable[[Path, Path], None]] = {
    "save_pretrained": _saved,
    "sharded": _sharded,
    "bare": _bare,
}


def _missing(tensors: dict[str, Any], name: str) -> None:
    del tensors[name]


def _misshapen(tensors: dict[str, Any], name: str) -> None:
    tensors[name] = torch.zeros(3, 5, dtype=torch.bfloat16)


DEFECTS: dict[str, Callable[[dict[str, Any], str], None]] = {
    "a tensor is missing": _missing,
    "another shape": _misshapen,
}


def spoilt(step: Path, at: Path, defect: str, name: str) -> None:
    """Write a version with one defect in one tensor."""
    at.mkdir()
    tensors = tensors_of(step)
    DEFECTS[defect](tensors, name)
    save_file(tensors, at / "model.safetensors", _META)


def finish(at: Path) -> None:
    """Leave the marker, and let others read."""
    for path in at.iterdir():
        path.chmod(0o644)
    (at / "STABLE").touch()
