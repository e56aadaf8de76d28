"""Tensors that kernels keep apart from the model's own, and how much of a model is readable.

CPU kernels pack small linear layers into tensors that only a closure refers to; these are read.
Weights that oneDNN packs cannot be read; the model's size at its creation shows how many.
"""

from collections.abc import Iterator
from typing import Any

import torch

try:
    from vllm.model_executor.model_loader.reload.layerwise import LAYERWISE_INFO
except ImportError:  # a release that records no forms
    LAYERWISE_INFO = {}

_PACKED = "cpu_linear"


def packed(model: Any) -> dict[str, Any]:
    """Return the tensors that kernels keep apart from the model's own, by name."""
    own = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    return {
        f"{path}.{_PACKED}.{name}": tensor
        for path, layer in model.named_modules()
        for name, tensor in _closed_over(getattr(layer, _PACKED, None))
        if id(tensor) not in own
    }


def sizes(model: Any) -> tuple[int, int]:
    """Return a model's bytes at its creation, and how many of them cannot be read.

    Parameters and persistent buffers count, tied ones once, but not those of a part that is left
    out. A tensor whose form vLLM does not record counts with its current size.
    """
    counted: set[int] = set()
    whole = unseen = 0
    for layer in model.modules():
        forms = _forms(layer)
        is_read = any(_closed_over(getattr(layer, _PACKED, None)))
        for name, tensor in _own(layer):
            if id(tensor) in counted:
                continue
            counted.add(id(tensor))
            form = forms.get(name, tensor)
            nbytes = form.numel() * form.element_size()
            whole += nbytes
            unseen += 0 if is_read or tensor.numel() else nbytes
    return whole, unseen


def _forms(layer: Any) -> dict[str, Any]:
    if layer not in LAYERWISE_INFO:
        return {}
    parameters, buffers = LAYERWISE_INFO[layer].restore_metadata
    return {**parameters, **buffers}


def _own(layer: Any) -> Iterator[tuple[str, Any]]:
    passing = layer._non_persistent_buffers_set
    own = (*layer._parameters.items(), *layer._buffers.items())
    yield from ((n, t) for n, t in own if t is not None and not t.is_meta and n not in passing)


def _closed_over(function: Any) -> Iterator[tuple[str, Any]]:
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=True):
        if isinstance(cell.cell_contents, torch.Tensor):
            yield name, cell.cell_contents
