"""Compares experts of a version and of the base model, fused or separate. Pure.

transformers computes with two fused tensors for all experts of a layer. Files of most models
hold each expert separately, files of some hold them fused. The engine reports the layers
that its loader reads in both forms (Consumed.experts). For those the base model is described
in the version's form, and then compared like any other. It must stay true that a version
holds each layer in one form, with all experts of the base model.
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
"""Dimensions of a separate tensor and of a fused one."""


class _Form(NamedTuple):
    number: int
    dtype: str
    shape: tuple[int, ...]


@dataclass(slots=True)
class _Layer:
    """The tensors of one layer's experts."""

    stem: str
    """The name before an expert's number, or before a fused tensor's last part."""
    fused: dict[str, Tensor] = field(default_factory=dict)
    single: dict[tuple[int, str], Tensor] = field(default_factory=dict)

    @property
    def form(self) -> bool | None:
        """Whether the layer is fused; None if it has both forms."""
        return None if self.fused and self.single else bool(self.fused)

    def tensors(self) -> Iterable[Tensor]:
        return *self.fused.values(), *self.single.values()


def in_form_of(
    model: Mapping[str, Tensor],
    found: Mapping[str, Tensor],
    experts: Experts,
    renames: Renames | None,
) -> Mapping[str, Tensor]:
    """Return the base model's tensors with experts in the form of a version."""
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
    """Return the message for experts in a form that the engine does not load, or None."""
    ours, theirs = _example(model), _example(found)
    if ours is None or theirs is None or ours[0] == theirs[0]:
        return None
    form = {True: "fused", False: "separate"}
    why = (
        "vLLM's loader of this model does not load that form"
        if is_known
        else "the engine has not reported that it loads both forms"
    )
    return (
        f"experts are {form[theirs[0]]} ({theirs[1]}), expected {form[ours[0]]} ({ours[1]}): {why}"
    )


def _example(names: Iterable[str]) -> tuple[bool, str] | None:
    """Return whether all experts are fused or none is, with the first's name; None if mixed."""
    ordered = sorted(names)
    fused = next(filter(_FUSED.search, ordered), None)
    single = next(filter(_ONE.search, ordered), None)
    if (fused is None) == (single is None):
        return None
    return fused is not None, fused or single or ""


def _layers(tensors: Mapping[str, Tensor], experts: Experts, renames: Renames) -> dict[str, _Layer]:
    """Return the layers that the engine named, by its names."""
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
    """Return separate experts as two fused tensors; empty if they differ in shape or dtype."""
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
    """Return two fused tensors as separate experts; empty if their shapes do not match."""
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
    """Return the common shape and dtype of experts numbered from 0; None if there is none."""
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
