"""vLLM's layerwise reload, corrected for models that copy weights without a weight loader.

vLLM materializes a layer once its weight loaders have delivered every element. gpt-oss copies its
experts and sinks without a loader, to the meta device, where a copy has no effect. This module
records such copies and repeats them on the real tensor. A copy by a loader must count once, in
vLLM. A model's own step after a load is missing in vLLM's reload too.
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
    """A copy into a part of a tensor that is on the meta device."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    source: Any


def load(model: Any, model_config: Any, tensors: Iterable[tuple[str, Any]]) -> None:
    """Load a checkpoint's tensors layer by layer into the existing memory."""
    layerwise.initialize_layerwise_reload(model)
    caught = _PastLoaders(model)
    try:
        with caught.of_loaders(), caught:
            model.load_weights(tensors)
        layerwise.finalize_layerwise_reload(model, model_config)
        _finish(model)
    except BaseException:
        _give_back(model)
        raise


def _finish(model: Any) -> None:
    """Call a model's own step after a load, as the boot does."""
    own = getattr(model, "process_weights_after_loading", None)
    if own is not None:
        own()


def _give_back(model: Any) -> None:
    """Restore the tensors of layers that a failed load left on the meta device."""
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
            if tensor.is_meta and not _is_left_out(layer, name)
        }

    @contextmanager
    def of_loaders(self) -> Iterator[None]:
        """Ignore copies by vLLM's loaders in this context."""
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
        """Execute the operation, and record it if it copies to the meta device."""
        done = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.copy_.default and args[0].is_meta and not self._in_loader:
            place = self._places.get(args[0].untyped_storage()._cdata)
            if place is not None:
                _take(*place, args[0], args[1])
        return done


def _is_left_out(layer: Any, name: str) -> bool:
    """Return whether a tensor belongs to a part that the engine has not, and has no memory."""
    own = layerwise.get_layerwise_info(layer).kernel_tensors or ()
    return any(getattr(tensors.get(name), "is_meta", False) for tensors in own)


def _take(layer: Any, name: str, target: Any, source: Any) -> None:
    """Count a copy as vLLM does for its loaders, and complete the layer after the last."""
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
    """Return a loader that also accepts recorded copies."""

    def either(param: Any, loaded: Any, *arguments: Any, **named: Any) -> Any:
        if isinstance(loaded, _Piece):
            return _play(param, loaded)
        return loader(param, loaded, *arguments, **named)

    either.plays = True  # type: ignore[attr-defined]
    return either


def _play(param: Any, piece: _Piece) -> None:
    part = param.data.as_strided(piece.size, piece.stride, piece.offset)
    part.copy_(piece.source)
