"""Does a version hold its experts fused where the boot model holds them one by one? Pure.

transformers computes with two tensors for all experts of a layer; the files of most models
hold each expert by itself, and those of some hold them fused. The engine reports which layers
its loader takes in both forms (Consumed.experts). There the boot model is described in the
version's form, and compared like any other. It must stay true that a version holds each layer
in one form, and each expert of the boot model in it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rlfleet_contract.engine.safetensors import Tensor
from rlfleet_contract.engine.tensor_names import Experts, Renames

_ONE = re.compile(r"\.experts\.\d+\.")
_FUSED = re.compile(r"\.experts\.[a-z]\w*(\.weight)?$|moe\.(input|output)_linear\.weight$")


_MATRIX, _STACKED = 2, 3
"""Dimensions of one expert's tensor, and of all experts' in one."""


class _Form(NamedTuple):
    number: int
    dtype: str
    shape: tuple[int, ...]


@dataclass(slots=True)
class _Layer:
    """One layer's experts, as some files name them."""

    stem: str
    """What stands before an expert's number, or a fused tensor's own name."""
    fused: dict[str, Tensor] = field(default_factory=dict)
    single: dict[tuple[int, str], Tensor] = field(default_factory=dict)

    @property
    def form(self) -> bool | None:
        """Tell whether it is fused; None if it is both."""
        return None if self.fused and self.single else bool(self.fused)

    def tensors(self) -> Iterable[Tensor]:
        return *self.fused.values(), *self.single.values()


def in_form_of(
    model: Mapping[str, Tensor],
    found: Mapping[str, Tensor],
    experts: Experts,
    renames: Renames | None,
) -> Mapping[str, Tensor]:
    """Describe the boot model with its experts in the form in which a version holds them."""
    known = renames or Renames()
    versions = _layers(found, experts, known)
    dropped: set[str] = set()
    added: dict[str, Tensor] = {}
    for place, layer in _layers(model, experts, known).items():
        version = versions.get(place)
        if version is None or None in (version.form, layer.form) or version.form is layer.form:
            continue
        other = _fuse(layer, experts) if version.form else _split(layer, experts)
        if other:
            dropped |= {tensor.name for tensor in layer.tensors()}
            added |= {tensor.name: tensor for tensor in other}
    return {name: model[name] for name in model.keys() - dropped} | added


def objection(model: Iterable[str], found: Iterable[str], *, is_known: bool) -> str | None:
    """Tell that a version's experts have the one form that the engine does not take."""
    ours, theirs = _example(model), _example(found)
    if ours is None or theirs is None or ours[0] == theirs[0]:
        return None
    told = {True: "fused", False: "one by one"}
    why = (
        "vLLM's loader of this model does not take that form"
        if is_known
        else "the engine has not reported that it takes both forms"
    )
    return (
        f"its experts are {told[theirs[0]]} ({theirs[1]}), the boot model's are {told[ours[0]]}"
        f" ({ours[1]}), and {why}"
    )


def _example(names: Iterable[str]) -> tuple[bool, str] | None:
    """Tell whether all experts are fused or none is, and name the first; None if neither."""
    ordered = sorted(names)
    fused = next(filter(_FUSED.search, ordered), None)
    single = next(filter(_ONE.search, ordered), None)
    if (fused is None) == (single is None):
        return None
    return fused is not None, fused or single or ""


def _layers(tensors: Mapping[str, Tensor], experts: Experts, renames: Renames) -> dict[str, _Layer]:
    """Find the layers that the engine named, by its own names."""
    parts = "|".join(map(re.escape, (experts.gate, experts.up, experts.down)))
    names = "|".join(map(re.escape, (experts.fused_gate_up, experts.fused_down)))
    pattern = re.compile(
        rf"(?P<stem>.+)\.(?:(?P<n>\d+)\.(?P<part>{parts})\.weight|(?P<all>{names}))"
    )
    places: dict[str, str] = {}
    layers: dict[str, _Layer] = {}
    for name, tensor in tensors.items():
        match = pattern.fullmatch(name)
        if match is None:
            continue
        stem = match["stem"]
        if stem not in places:
            places[stem] = renames.of(f"{stem}.").removesuffix(".")
        layer = layers.setdefault(places[stem], _Layer(stem))
        if match["all"]:
            layer.fused[match["all"]] = tensor
        else:
            layer.single[int(match["n"]), match["part"]] = tensor
    return {place: layer for place, layer in layers.items() if place in set(experts.places)}


def _fuse(layer: _Layer, experts: Experts) -> list[Tensor]:
    """Describe experts one by one as two fused tensors; nothing if they are not alike."""
    gate, up, down = (_common(layer, part) for part in (experts.gate, experts.up, experts.down))
    if gate is None or gate != up or down is None or gate.number != down.number:
        return []
    rows, columns = gate.shape
    both = _turned((2 * rows, columns), experts)
    return [
        _made(f"{layer.stem}.{experts.fused_gate_up}", gate.dtype, (gate.number, *both)),
        _made(
            f"{layer.stem}.{experts.fused_down}",
            down.dtype,
            (down.number, *_turned(down.shape, experts)),
        ),
    ]


def _split(layer: _Layer, experts: Experts) -> list[Tensor]:
    """Describe two fused tensors as experts one by one; nothing if they do not go together."""
    both, down = (layer.fused.get(name) for name in (experts.fused_gate_up, experts.fused_down))
    if both is None or down is None or not len(both.shape) == len(down.shape) == _STACKED:
        return []
    rows, columns = _turned(both.shape[1:], experts)
    if both.shape[0] != down.shape[0] or rows % 2:
        return []
    single = {
        experts.gate: (both.dtype, (rows // 2, columns)),
        experts.up: (both.dtype, (rows // 2, columns)),
        experts.down: (down.dtype, _turned(down.shape[1:], experts)),
    }
    return [
        _made(f"{layer.stem}.{number}.{part}.weight", *form)
        for number in range(both.shape[0])
        for part, form in single.items()
    ]


def _common(layer: _Layer, part: str) -> _Form | None:
    """Return what is the same of each expert, numbered from 0; None if something is not."""
    found = {number: tensor for (number, name), tensor in layer.single.items() if name == part}
    forms = {(tensor.dtype, tensor.shape) for tensor in found.values()}
    if len(forms) != 1 or found.keys() != set(range(len(found))):
        return None
    dtype, shape = forms.pop()
    return _Form(len(found), dtype, shape) if len(shape) == _MATRIX else None


def _turned(shape: tuple[int, ...], experts: Experts) -> tuple[int, ...]:
    return shape[::-1] if experts.transposed else shape


def _made(name: str, dtype: str, shape: tuple[int, ...]) -> Tensor:
    return Tensor(name, dtype, shape, 0, 0)
