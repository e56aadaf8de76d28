"""vLLM's layerwise reload, for models that copy past their weight loaders too.

vLLM waits for a layer's weight loaders and makes the layer real when they have brought every
element. gpt-oss copies its experts and sinks without a loader: onto the meta device, where
that has no effect. Such copies are caught here and played again on the real tensor.
It must stay true that a copy which a loader makes is counted once, by vLLM.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from vllm.model_executor.layers.attention import is_deferred_attention_layer
from vllm.model_executor.model_loader.reload import layerwise
from vllm.model_executor.model_loader.reload.utils import get_layer_size, get_layer_tensors


class _Piece(NamedTuple):
    """A copy into a part of a tensor that is not real yet."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    source: Any


def load(model: Any, model_config: Any, tensors: Iterable[tuple[str, Any]]) -> None:
    """Take tensors in a checkpoint's form, layer by layer, into the memory that stands."""
    layerwise.initialize_layerwise_reload(model)
    caught = _PastLoaders(model)
    try:
        with caught.of_loaders(), caught:
            model.load_weights(tensors)
        layerwise.finalize_layerwise_reload(model, model_config)
    except BaseException:
        _give_back(model)
        raise


def _give_back(model: Any) -> None:
    """Put the tensors back of layers that a failed load left unreal, so that another can come."""
    for layer in model.modules():
        info = layerwise.get_layerwise_info(layer)
        if info.can_load() and info.kernel_tensors is not None:
            layerwise._place_kernel_tensors(layer, info)
        info.reset()


class _PastLoaders(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self, model: Any) -> None:
        super().__init__()
        self._in_loader = False
        self._places = {
            tensor.untyped_storage()._cdata: (layer, name)
            for layer in model.modules()
            for name, tensor in get_layer_tensors(layer).items()
            if tensor.is_meta
        }

    @contextmanager
    def of_loaders(self) -> Iterator[None]:
        """Leave the copies that vLLM's loaders make to vLLM."""
        counted = layerwise.get_numel_loaded

        def within(*arguments: Any) -> Any:
            self._in_loader = True
            try:
                return counted(*arguments)
            finally:
                self._in_loader = False

        layerwise.get_numel_loaded = within
        try:
            yield
        finally:
            layerwise.get_numel_loaded = counted

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Remember a copy onto the meta device, and let everything through."""
        done = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.copy_.default and args[0].is_meta and not self._in_loader:
            place = self._places.get(args[0].untyped_storage()._cdata)
            if place is not None:
                _take(*place, args[0], args[1])
        return done


def _take(layer: Any, name: str, target: Any, source: Any) -> None:
    """Count a copy as vLLM's loaders do, and complete the layer if it was the last."""
    info = layerwise.get_layerwise_info(layer)
    loader = getattr(layer, name).weight_loader
    if not hasattr(loader.__wrapped__, "plays"):
        loader.__wrapped__ = _playing(loader.__wrapped__)
    piece = _Piece(tuple(target.shape), target.stride(), target.storage_offset(), source)
    played = inspect.signature(_play).bind(None, piece)
    info.loaded_weights.append((name, played))
    info.load_numel += target.numel()
    if info.load_numel >= get_layer_size(layer) and not is_deferred_attention_layer(layer):
        layerwise._layerwise_process(layer, info)


def _playing(loader: Callable[..., Any]) -> Callable[..., Any]:
    """Make a loader that plays pieces and loads all else."""

    def either(param: Any, loaded: Any, *arguments: Any, **named: Any) -> Any:
        if isinstance(loaded, _Piece):
            return _play(param, loaded)
        return loader(param, loaded, *arguments, **named)

    either.plays = True  # type: ignore[attr-defined]
    return either


def _play(param: Any, piece: _Piece) -> None:
    part = param.data.as_strided(piece.size, piece.stride, piece.offset)
    part.copy_(piece.source)
