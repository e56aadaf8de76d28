"""Makes a model's files."""

import json
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
import yaml
from safetensors.torch import load_file, save_file

from rlfleet_contract.worker.selftest import kind_of
from rlfleet_engine.reload import perturb
from rlfleet_sidecar.proof.selftest import FAR
from zoo import forms, processor, quantised, written

TABLE: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("models.yaml").read_text())
MODELS: Mapping[str, Mapping[str, Any]] = TABLE["models"]
_SPREAD = 0.02
_FURTHER: Mapping[str, Callable[[Path, Any], object]] = {
    "turned": lambda at, _: forms.turn(at),
    "renamed": forms.rename,
    "own_head": lambda at, _: forms.say_tied(at),
    "both_names": lambda at, _: forms.name_twice(at),
    "quantised": quantised.write,
    "processor": processor.write,
    "pictures": lambda at, told: (at / "preprocessor_config.json").write_text(json.dumps(told)),
    "voices": lambda at, _: torch.save({}, at / "spk_dict.pt"),
}
"""What is done to a model's files, by its key in the table."""


def config_of(entry: Mapping[str, Any]) -> Any:
    """Return a model's configuration."""
    arguments = (
        dict(entry["alone"]) if "alone" in entry else TABLE["common"] | entry.get("with", {})
    )
    if "text" in entry:
        arguments["text_config"] = config_of(entry["text"]).to_dict()
    return getattr(transformers, entry["config"])(**arguments)


def base(name: str, seed: int, at: Path) -> Path:
    """Write a random model whose every tensor has content of its own, as its files are."""
    entry = MODELS[name]
    if "written" in entry:
        written.write(at, entry["written"], seed)
    else:
        _made(entry, seed).save_pretrained(at)
    if "drafter" in entry:
        forms.add_drafter(at, seed)
    if "added" in entry:
        written.add(at, entry["added"], seed)
    for key, further in _FURTHER.items():
        if key in entry:
            further(at, entry[key])
    return at


def options_of(name: str, root: Path) -> dict[str, Any]:
    """Return more arguments of vLLM, and write the model of its own that proposes tokens."""
    entry = MODELS[name]
    found = dict(entry.get("engine", {}))
    if "speculator" in entry:
        written.write(root / "speculator", entry["speculator"], 2)
        method = {"model": str(root / "speculator"), "num_speculative_tokens": 1}
        found["speculative_config"] = method | {"method": entry["speculator"]["method"]}
    return found


def _made(entry: Mapping[str, Any], seed: int) -> Any:
    torch.manual_seed(seed)
    model = getattr(transformers, _class(entry)).from_config(config_of(entry))
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(torch.randn_like(tensor) * _SPREAD)
    return model.to(torch.bfloat16)


def state_of(name: str, at: Path) -> dict[str, Any]:
    """Return the state dict of a checkpoint as transformers holds it: a trainer's own names."""
    if MODELS[name].keys() & {"quantised", "drafter", "added", "own_head", "both_names", "written"}:
        return forms.tensors_of(at)
    kind = getattr(transformers, _class(MODELS[name]))
    model = kind.from_pretrained(at, dtype=torch.bfloat16)
    return {key: tensor.clone().contiguous() for key, tensor in model.state_dict().items()}


def forms_of(name: str, step: Path) -> Mapping[str, forms.Write]:
    """Return how a step is written in each of its forms."""
    found = forms.forms(step, state_of(name, step))
    if "further" not in MODELS[name]:
        return found
    more = forms.tensors_of(step) | written.tensors(MODELS[name]["further"], 3)
    return {**found, "further": lambda at: forms.bare(more, at)}


def _class(entry: Mapping[str, Any]) -> str:
    pictures = "AutoModelForImageTextToText" if "text" in entry else "AutoModelForCausalLM"
    return str(entry.get("class", pictures))


def change(base: Path, at: Path, kinds: Collection[str]) -> None:
    """Write the base with far other tensors of these kinds."""
    shutil.copytree(base, at)
    for path in at.glob("*.safetensors"):
        tensors = {
            name: perturb.changed(name, tensor, FAR) if kind_of(name) in kinds else tensor
            for name, tensor in load_file(path).items()
        }
        save_file(tensors, path, forms.META)


def finish(at: Path) -> None:
    """Leave the marker, and let others read."""
    for path in at.iterdir():
        path.chmod(0o644)
    (at / "STABLE").touch()
