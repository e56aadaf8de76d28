"""Buffers that are views of a parameter's original memory, which a reload must write.

Mamba 2 computes with a buffer that views its convolution's weights. A kernel packs those weights
into other memory, but the buffer keeps the original: a reload must write there. Such buffers are
those whose form vLLM does not record.
"""

from typing import Any

import torch
from vllm.model_executor.model_loader.reload.layerwise import LAYERWISE_INFO
from vllm.model_executor.model_loader.reload.meta import SKIP_TENSORS


class ViewBuffers:
    """The buffers of a model that view parameters."""

    def __init__(self, model: Any) -> None:
        self._of: dict[int, list[Any]] = {}
        self._taken: set[int] = set()
        for layer in model.modules():
            for buffer in _views(layer):
                for parameter in layer.parameters():
                    self._of.setdefault(id(parameter), []).append(buffer)

    def room(self, parameter: Any, form: Any) -> torch.Tensor:
        """Return memory for a parameter: the memory that a buffer views, else new zeros."""
        nbytes = form.numel() * form.element_size()
        for buffer in self._of.get(id(parameter), []):
            storage = buffer.untyped_storage()
            if (buffer.dtype, storage.nbytes()) == (form.dtype, nbytes):
                if storage.data_ptr() in self._taken:
                    raise RuntimeError("a buffer's memory fits two parameters, expected one")
                self._taken.add(storage.data_ptr())
                return buffer.as_strided(form.shape, form.stride(), 0)
        return torch.zeros_like(form, device="cpu")


def _views(layer: Any) -> list[Any]:
    if layer not in LAYERWISE_INFO:
        return []
    _, recorded = LAYERWISE_INFO[layer].restore_metadata
    names = layer._non_persistent_buffers_set - recorded.keys() - SKIP_TENSORS
    return [layer._buffers[name] for name in names if layer._buffers.get(name) is not None]
