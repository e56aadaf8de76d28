"""Records which tensors of a checkpoint vLLM's load at boot reads.

Only the code of each architecture says which tensors a model ignores (multi-token prediction, old
rotary buffers, a tied head). So this module watches every operation of the load. A tensor that no
operation reads is ignored by the model; a view reads nothing.

A drafter has the same loader, so what it reads of the base model's files counts too. A failure
here must not change the load.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from vllm.model_executor.model_loader import base_loader

from rlfleet_contract.engine.rank_report import Consumed
from rlfleet_contract.engine.tensor_names import DRAFTER, packed
from rlfleet_engine import json_logs
from rlfleet_engine.reload.ledger import Ledger
from rlfleet_engine.vllm.reload import aliases, fused_experts
from rlfleet_engine.vllm.reload.renamed import renames_of

_HEAD = "lm_head"
_LOAD = "load_weights"
_MARK = "_rlfleet_watched"
_log = json_logs.logger(__name__)


class ReadRecorder:
    """The tensors that loads in this process have read."""

    def __init__(self) -> None:
        self._ledger = Ledger()
        """Of the load under way."""
        self._read_by: WeakKeyDictionary[Any, frozenset[str]] = WeakKeyDictionary()
        self._storages: dict[int, StorageWeakRef] = {}
        """References to storages, so that no other storage gets their addresses."""
        self.failed = False
        self.filled: list[fused_experts.FilledExperts] = []
        """Layers of experts that load from either form."""

    def names_read(self, apart: Any | None) -> frozenset[str] | None:
        """Return the names of the tensors that were read; None if the record is incomplete.

        ``apart``: a drafter with files of its own, whose tensors no version holds.
        """
        read = [names for model, names in self._read_by.items() if model is not apart]
        return None if self.failed or not read else frozenset().union(*read)

    def names_read_by(self, model: Any) -> frozenset[str]:
        """Return the names of the tensors that one model's load read; none if that is unknown."""
        return frozenset() if self.failed else self._read_by.get(model, frozenset())

    def named(self, weights: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """Record tensors and yield them."""
        for name, tensor in weights:
            self._quietly(self._came, name, tensor)
            yield name, tensor

    def reads(self, found: object) -> None:
        """Record each tensor in the arguments of an operation as read."""
        if isinstance(found, torch.Tensor):
            self._quietly(self._reads, found)
        elif isinstance(found, list | tuple):
            for one in found:
                self.reads(one)
        elif isinstance(found, dict):
            self.reads(list(found.values()))

    def ends(self, model: Any) -> None:
        """Record the end of a model's load, and each tensor that became a part without a copy."""
        self.reads([*model.parameters(), *model.buffers()])
        self._read_by[model] = frozenset(self._ledger.read)
        self._ledger = Ledger()

    def _came(self, name: str, tensor: Any) -> None:
        storage, begin = _place(tensor)
        self._storages.setdefault(storage, StorageWeakRef(tensor.untyped_storage()))
        self._ledger.came(name, storage, begin, begin + tensor.numel() * tensor.element_size())

    def _reads(self, tensor: Any) -> None:
        storage, begin = _place(tensor)
        if self._ledger.is_known(storage):
            self._ledger.reads(storage, begin)

    def _quietly(self, note: Callable[..., None], *arguments: object) -> None:
        try:
            note(*arguments)
        except (RuntimeError, NotImplementedError, AttributeError, TypeError):
            # A kind of tensor without memory of its own; reads of it are invisible.
            if not self.failed:
                _log.warning("Failed to record which tensors the load reads", exc_info=True)
            self.failed = True


class _Operations(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self, watching: ReadRecorder) -> None:
        super().__init__()
        self._watching = watching

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not getattr(func, "is_view", False):
            self._watching.reads((args, kwargs))
        return func(*args, **(kwargs or {}))


_WATCHING = ReadRecorder()


def watch_loading() -> None:
    """Watch the load of each model that this process creates from now on."""
    make = base_loader.initialize_model
    if hasattr(make, _MARK):
        return

    @wraps(make)
    def watched(*arguments: Any, **named: Any) -> Any:
        model = make(*arguments, **named)
        _watch(model, _WATCHING)
        return model

    setattr(watched, _MARK, True)
    base_loader.initialize_model = watched


def at_boot(model: Any, ranks: int, apart: Any | None) -> Consumed | None:
    """Return the tensors that the load at boot read, and whether the head is tied.

    ``apart``: a drafter with files of its own.
    """
    read = _WATCHING.names_read(apart)
    if read is None:
        return None
    return Consumed(
        names=packed(read),
        tied=_is_tied(model),
        ranks=ranks,
        renames=renames_of(model, read),
        experts=fused_experts.experts_of(model, _WATCHING.filled),
        omits_drafters=True,
    )


def read_by(model: Any) -> frozenset[str]:
    """Return the tensors that the load at boot of one model read: of a drafter, its own."""
    return _WATCHING.names_read_by(model)


def as_booted(
    model: Any, apart: Any | None, tensors: Iterable[tuple[str, Any]]
) -> Iterator[tuple[str, Any]]:
    """Leave out what the boot did not read and some loaders fail on.

    That is a tied head, and layers that propose tokens: a trainer may save those of its own base.
    """
    read = _WATCHING.names_read(apart)
    # Before the load, which may take the parameters of layers apart.
    is_tied, known = _is_tied(model), read or frozenset()

    def is_left_out(name: str) -> bool:
        is_drafter = read is not None and DRAFTER.search(name) is not None
        return is_drafter or (is_tied and _is_head(name))

    return ((name, data) for name, data in tensors if name in known or not is_left_out(name))


def _is_tied(model: Any) -> bool:
    """Return whether the head's parameter is another's, or logits use the embeddings."""
    first = {name for name, _ in model.named_parameters()}
    further = {name for name, _ in model.named_parameters(remove_duplicate=False)} - first
    return any(map(_is_head, further)) or not _has_head(model)


def _has_head(model: Any) -> bool:
    return any(name.rpartition(".")[2] == _HEAD for name, _ in model.named_modules())


def _is_head(name: str) -> bool:
    return name == f"{_HEAD}.weight" or name.endswith(f".{_HEAD}.weight")


def _watch(model: Any, watching: ReadRecorder) -> None:
    load = getattr(model, _LOAD, None)
    if load is None:
        return

    @wraps(load)
    def watched(weights: Iterable[tuple[str, Any]], *arguments: Any, **named: Any) -> Any:
        # Only this load is watched; worker.py knows what a reload reads.
        vars(model).pop(_LOAD, None)
        before = aliases.parts(model)
        with fused_experts.noted(model, watching.filled), _Operations(watching):
            made = load(watching.named(weights), *arguments, **named)
        watching.ends(model)
        if replaced := aliases.made(before, aliases.parts(model)):
            vars(model)[_LOAD] = aliases.without(model, replaced, load)
        return made

    vars(model)[_LOAD] = watched


def _place(tensor: Any) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    return storage._cdata, tensor.storage_offset() * tensor.element_size()
