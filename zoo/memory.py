"""Looks at the memory of a worker's model, and spoils it, inside the worker."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rlfleet_engine.reload import model_memory
from rlfleet_engine.reload.word_sum import word_sum
from rlfleet_engine.reload.zeroed import ZeroedMemory

Load = Callable[[Any, Iterable[tuple[str, Any]], ZeroedMemory], None]


def addresses(worker: Any) -> dict[str, int]:
    """Return where each parameter is."""
    return {name: tensor.data_ptr() for name, tensor in _named(worker)}


def unlike_on_device(worker: Any) -> list[str]:
    """Return the parameters of which a GPU would compute another digest than a processor."""
    found = []
    for name, tensor in _named(worker):
        data = model_memory.bytes_of(tensor)
        if model_memory.sum_on_device(data) != word_sum(data.numpy()):
            found.append(name)
    return found


class Spoiling:
    """A load after which one value of a parameter is not the checkpoint's."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self.spoilt: str | None = None
        """A parameter that has its tensor's name; None if the model has none."""

    def __call__(
        self, worker: Any, tensors: Iterable[tuple[str, Any]], zeroed: ZeroedMemory
    ) -> None:
        """Load, and spoil."""
        seen: list[str] = []
        self._load(worker, _noted(tensors, seen), zeroed)
        named = dict(_named(worker))
        for name in seen:
            if name in named and named[name].numel():
                named[name].data.view(-1)[0] += 1
                self.spoilt = name
                return


def _noted(tensors: Iterable[tuple[str, Any]], seen: list[str]) -> Iterator[tuple[str, Any]]:
    for name, tensor in tensors:
        seen.append(name)
        yield name, tensor


def _named(worker: Any) -> Iterable[tuple[str, Any]]:
    return model_memory.named(worker.get_model()).items()
