"""Reloads a model on a CPU by the functions of the boot (docs/decisions/0023-reload-on-cpu.md).

vLLM's own layerwise reload is not faithful on a CPU: expert kernels pack their weights only at
the first load, and a model that copies into a parameter without its loader keeps the old one. A
CPU has no CUDA graphs, so addresses may change, and the boot's functions can run again in the
same order. A parameter that vLLM dropped after the boot must be written, or the reload must fail.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from vllm.lora.layers import BaseLayerWithLoRA
from vllm.model_executor.layers.attention.attention import set_default_quant_scales
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.model_executor.layers.quantization.kv_cache import BaseKVCacheMethod
from vllm.model_executor.model_loader.reload.layerwise import (
    LAYERWISE_INFO,
    _get_original_loader,
)
from vllm.model_executor.model_loader.reload.meta import SKIP_TENSORS, to_meta_tensor
from vllm.model_executor.model_loader.reload.sanitize import restore_layer_refs
from vllm.model_executor.model_loader.utils import process_weights_after_loading
from vllm.utils.torch_utils import set_default_torch_dtype

from rlfleet_engine.reload.zeroed import SMALLEST, ZeroedMemory


class Rooms:
    """Memory for parameters: what buffers of the model view, zeroed memory, or new zeros."""

    def __init__(self, model: Any, zeroed: ZeroedMemory) -> None:
        self._zeroed = zeroed
        self._of: dict[int, list[Any]] = {}
        self._taken: set[int] = set()
        for layer in model.modules():
            for buffer in _views(layer):
                for parameter in layer.parameters():
                    self._of.setdefault(id(parameter), []).append(buffer)

    def room(self, parameter: Any, form: Any) -> torch.Tensor:
        """Return memory for a parameter: what a buffer of it views, or zeros."""
        nbytes = _nbytes(form)
        for buffer in self._of.get(id(parameter), []):
            storage = buffer.untyped_storage()
            if (buffer.dtype, storage.nbytes()) == (form.dtype, nbytes):
                if storage.data_ptr() in self._taken:
                    raise RuntimeError("a buffer's memory fits two parameters, expected one")
                self._taken.add(storage.data_ptr())
                return buffer.as_strided(form.shape, form.stride(), 0)
        block = self._zeroed.take(nbytes) if form.is_contiguous() else None
        if block is None:
            return torch.zeros_like(form, device="cpu")
        return torch.frombuffer(block, dtype=form.dtype).view(form.shape)


def _views(layer: Any) -> list[Any]:
    if layer not in LAYERWISE_INFO:
        return []
    _, recorded = LAYERWISE_INFO[layer].restore_metadata
    names = layer._non_persistent_buffers_set - recorded.keys() - SKIP_TENSORS
    return [layer._buffers[name] for name in names if layer._buffers.get(name) is not None]


class WriteCounter(TorchDispatchMode):  # type: ignore[misc]
    """Counts written elements by their memory while this context is active."""

    def __init__(self) -> None:
        super().__init__()
        self._elements: Counter[int] = Counter()

    def into(self, tensor: Any) -> int:
        """Return the elements written into a tensor's memory; an element counts each time."""
        return self._elements[_memory(tensor)]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Execute the operation, and count it if it changes its first argument."""
        if args and func._schema.is_mutable:
            self._elements[_memory(args[0])] += args[0].numel()
        return func(*args, **(kwargs or {}))


def _memory(tensor: Any) -> int:
    """Return the identity of a tensor's storage, which on the meta device has no address."""
    return int(tensor.untyped_storage()._cdata)


_PROCESSED = "_already_called_process_weights_after_loading"
_PACKED = ("cpu_linear", "_cpu_unpacked_conv_weight")
"""Attributes that processing adds to a layer, and creates again."""
_UNTIED = "word_embeddings_untied_by_checkpoint"
"""Of vLLM's configuration: says that a head equal to the embeddings is to be tied."""
_EMPTY = "_rlfleet_empty"
"""Marks a tensor without weights, also after a failed load."""


def load(
    model: Any, model_config: Any, tensors: Iterable[tuple[str, Any]], zeroed: ZeroedMemory
) -> None:
    """Load a checkpoint's tensors as the boot does."""
    device = torch.device("cpu")
    with torch.no_grad(), set_default_torch_dtype(model_config.dtype):
        memory = Rooms(model, zeroed)
        bare = _Bare(model)
        layers = [layer for _, layer in bare.named_modules()]
        restored = [tensor for layer in layers for tensor in _restore(layer, memory)]
        with WriteCounter() as written:
            model.load_weights(tensors)
        _demand_written(restored, written)
        process_weights_after_loading(bare, _as_booted(model_config), device)


def _as_booted(model_config: Any) -> Any:
    """Return a configuration with which vLLM keeps the head of the boot.

    It would tie a head that equals the embeddings, and the next version's own head were unread.
    """
    config = copy(model_config)
    if hasattr(config, _UNTIED):
        setattr(config, _UNTIED, False)
    return config


def rooms(model: Any) -> list[int]:
    """Return the sizes of the zeroed memory that a load will take, in bytes."""
    found = {}
    for _, layer in _Bare(model).named_modules():
        for tensors, forms in _recorded(layer):
            for name, form in forms.items():
                tensor = tensors.get(name)
                is_large = form.is_contiguous() and _nbytes(form) >= SMALLEST
                if is_large and (tensor is None or _form(tensor) != _form(form)):
                    # A tensor of two layers gets one room.
                    found[(layer, name) if tensor is None else id(tensor)] = _nbytes(form)
    return [*found.values()]


def recorded(model: Any) -> Iterator[Any]:
    """Yield all tensors of a model as vLLM recorded them at their creation."""
    for layer in model.modules():
        for forms in LAYERWISE_INFO[layer].restore_metadata if layer in LAYERWISE_INFO else ():
            yield from forms.values()


class _Bare:
    """A model without the layers that LoRA wraps around its own, as at its boot.

    Such a layer has the attributes of the inner one, so both would be processed.
    """

    def __init__(self, model: Any) -> None:
        self._model = model

    def named_modules(self) -> Iterator[tuple[str, Any]]:
        found = self._model.named_modules()
        return ((name, one) for name, one in found if not isinstance(one, BaseLayerWithLoRA))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def _demand_written(tensors: list[Any], written: WriteCounter) -> None:
    left = sum(1 for tensor in tensors if not written.into(tensor))
    if left:
        raise RuntimeError(
            f"{left} of {len(tensors)} packed parameters got no weights; write a version with every"
            " tensor of the base model"
        )
    for tensor in tensors:
        tensor.__dict__.pop(_EMPTY, None)


def _restore(layer: Any, memory: Rooms) -> list[Any]:
    """Restore a layer's tensors as created; return those without weights."""
    for name in (_PROCESSED, *_PACKED):
        layer.__dict__.pop(name, None)
    method = getattr(layer, "quant_method", None)
    if method is not None and hasattr(method, "moe_kernel"):
        method.moe_kernel = None
    if isinstance(method, BaseKVCacheMethod):
        # A checkpoint may have none of these: their values at creation count.
        set_default_quant_scales(layer, register_buffer=True)
        method.create_weights(layer)
    made = [
        tensor
        for tensors, forms in _recorded(layer)
        for tensor in _remade(layer, tensors, forms, memory)
    ]
    if layer in LAYERWISE_INFO:
        _restore_bias(layer)
        _restore_references(layer)
    return made


def _recorded(layer: Any) -> list[tuple[dict[str, Any], Mapping[str, Any]]]:
    """Return a layer's parameters and persistent buffers, each with their forms at creation."""
    if layer not in LAYERWISE_INFO:
        return []
    parameters, buffers = LAYERWISE_INFO[layer].restore_metadata
    passing = layer._non_persistent_buffers_set
    kept = {name: form for name, form in buffers.items() if name not in passing}
    return [(layer._parameters, parameters), (layer._buffers, kept)]


def _restore_bias(layer: Any) -> None:
    """Undo a kernel's cast of a bias, whose form vLLM does not record.

    Only kernels of quantised weights cast one. A router may have a float32 bias by its model's
    code (K2 Horizon).
    """
    bias, dtype = layer._parameters.get("bias"), getattr(layer, "params_dtype", None)
    is_plain = isinstance(getattr(layer, "quant_method", None), UnquantizedLinearMethod)
    if bias is not None and dtype is not None and not is_plain:
        bias.data = bias.data.to(dtype)


def _restore_references(layer: Any) -> None:
    """Give an attention kernel the model's own tensors again, such as sinks that it cast."""
    for child in layer.children():
        kernel = getattr(getattr(child, "impl", None), "__dict__", {})
        for name, parameter in layer._parameters.items():
            if parameter is not None and isinstance(kernel.get(name), torch.Tensor):
                kernel[name] = parameter


def _remade(
    layer: Any, tensors: dict[str, Any], forms: Mapping[str, Any], memory: Rooms
) -> Iterator[Any]:
    """Restore tensors to the form of their creation, and yield those without weights.

    The object of a tensor stays, because others refer to it: a tied head, an attention's sinks.
    Its memory stays too if its form has not changed.
    """
    for name, form in forms.items():
        tensor = tensors.get(name)
        if tensor is None:
            tensor = tensors[name] = torch.nn.Parameter(torch.empty(0), requires_grad=False)
        is_empty = hasattr(tensor, _EMPTY)
        if _form(tensor) != _form(form):
            tensor.data, is_empty = memory.room(tensor, form), form.numel() > 0
        like = restore_layer_refs(to_meta_tensor(form), layer)
        if hasattr(like, "weight_loader"):
            # After a reload of vLLM's own the recorded loader is one that waits for such a reload.
            like.weight_loader = _get_original_loader(like)
        tensor.__class__, tensor.__dict__ = like.__class__, like.__dict__
        if is_empty:
            setattr(tensor, _EMPTY, True)
            yield tensor


def _nbytes(form: Any) -> int:
    return int(form.numel() * form.element_size())


def _form(tensor: Any) -> tuple[Any, ...]:
    return tensor.dtype, tensor.shape, tensor.stride()
