"""Files of a model that transformers has no class for: its code comes with its weights.

The names are those of its maker's files; the table says the shape of each.
"""

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from zoo import forms

_MODULE = "configuration_zoo"
_CLASS = """from transformers import AutoConfig, PretrainedConfig


class Part(PretrainedConfig):
    pass


class Config(PretrainedConfig):
    model_type = {!r}

    def __init__(self, llm_config=None, **more):
        if llm_config is not None:
            self.llm_config = AutoConfig.for_model(**llm_config)
        for name in [name for name in more if name.endswith("_config")]:
            setattr(self, name, Part(**more.pop(name)))
        super().__init__(**more)
"""
_SPREAD = 0.05
_NORM = "norm.weight"


def write(at: Path, wanted: Mapping[str, Any], seed: int) -> None:
    """Write a model: ``config``, ``counts`` of what is numbered, ``tensors`` with their shapes.

    ``code`` makes its class of configuration, if it has one of its own; ``params`` stand for
    ``config`` in Mistral's own format.
    """
    at.mkdir()
    made = tensors(wanted, seed)
    if "params" in wanted:
        save_file(made, at / "consolidated.safetensors", forms.META)
        (at / "params.json").write_text(json.dumps(wanted["params"]))
        return
    save_file(made, at / "model.safetensors", forms.META)
    config = dict(wanted["config"])
    if wanted.get("has_code", True):
        code = wanted.get("code") or _CLASS.format(config["model_type"])
        (at / f"{_MODULE}.py").write_text(code)
        config["auto_map"] = {"AutoConfig": f"{_MODULE}.Config"}
    (at / "config.json").write_text(json.dumps(config))


def add(at: Path, wanted: Mapping[str, Any], seed: int) -> None:
    """Add ``tensors`` for which transformers has no layers, and ``config`` that announces them."""
    joined = forms.tensors_of(at) | tensors(wanted, seed)
    save_file(joined, at / "model.safetensors", forms.META)
    config = json.loads((at / "config.json").read_text()) | wanted.get("config", {})
    (at / "config.json").write_text(json.dumps(config))


def tensors(wanted: Mapping[str, Any], seed: int) -> forms.Tensors:
    """Make ``tensors`` of the shapes that the table says."""
    random = torch.Generator().manual_seed(seed)
    return {
        name: _made(name, shape, random)
        for pattern, shape in wanted["tensors"].items()
        for name in _numbered(pattern, wanted.get("counts", {}))
    }


def _numbered(pattern: str, counts: Mapping[str, Any]) -> list[str]:
    """Return the names for a pattern with letters of ``counts`` as parts."""
    parts = [_values(counts.get(part), part) for part in pattern.split(".")]
    return [".".join(one) for one in itertools.product(*parts)]


def _values(count: Any, part: str) -> list[str]:
    if count is None:
        return [part]
    return [str(number) for number in (range(count) if isinstance(count, int) else count)]


def _made(name: str, shape: Any, random: torch.Generator) -> Any:
    if isinstance(shape, dict):
        # A table of numbers, as DeepSeek V4's of experts by tokens.
        return torch.randint(shape["below"], shape["shape"], generator=random)
    tensor = torch.randn(shape, generator=random) * _SPREAD
    return (tensor + name.endswith(_NORM)).to(torch.bfloat16)
