"""Looks at the memory of a worker's model, and spoils it, inside the worker."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rlfleet_engine.reload import model_memory
from rlfleet_engine.reload.word_sum import word_sum
from rlfleet_engine.reload.zeroed import ZeroedMemory
from rlfleet_engine.vllm.reload import kept, load

Load = Callable[[Any, Iterable[tuple[str, Any]], ZeroedMemory], None]


def addresses(worker: Any) -> dict[str, int]:
    """Return where each parameter is."""
    return {name: tensor.data_ptr() for name, tensor in _named(worker)}


def unlike_on_device(worker: Any) -> list[str]:
    """Return the parameters of which a GPU would compute another digest than a processor."""
    found = []
    for name, tensor in _named(worker):
        data = model_memory.bytes_of(tensor)
        if model_memory.sum_on_device(data) != _sum(data):
            found.append(name)
    return found


def drafter(worker: Any) -> dict[str, int]:
    """Return a sum of each tensor of what proposes tokens; empty if it has no files here."""
    model = load.drafter_of(worker)
    return {} if model is None else _sums(model)


def model(worker: Any) -> dict[str, int]:
    """Return a sum of each tensor of the model, also of those that no checkpoint has."""
    return _sums(worker.get_model())


def spoil(worker: Any) -> None:
    """Spoil each load of the last rank from now on."""
    if worker.rank == worker.parallel_config.world_size - 1:
        vars(load).update(load=_Spoiling(load.load))


def spare(worker: Any) -> str | None:  # noqa: ARG001 - what vLLM passes
    """Spoil no further load; return the parameter that was spoilt."""
    spoiling = load.load
    if not isinstance(spoiling, _Spoiling):
        return None
    vars(load).update(load=spoiling.load)
    return spoiling.spoilt


class _Spoiling:
    """A load after which one value of a parameter is not the checkpoint's."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.spoilt: str | None = None
        """A parameter that is its tensor, unchanged; None if the model has none."""

    def __call__(
        self, worker: Any, tensors: Iterable[tuple[str, Any]], zeroed: ZeroedMemory
    ) -> None:
        """Load, and spoil."""
        seen: dict[str, Any] = {}
        self.load(worker, _noted(tensors, seen), zeroed)
        named = dict(_named(worker))
        for name, tensor in seen.items():
            # Others a model scales or normalises: what their values must be, no proof can say.
            if name in named and _is_same(named[name], tensor):
                named[name].data.view(-1)[0] += 1
                self.spoilt = name
                return


def _noted(tensors: Iterable[tuple[str, Any]], seen: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, tensor in tensors:
        seen[name] = tensor.clone()
        yield name, tensor


def _is_same(one: Any, other: Any) -> bool:
    is_alike = (one.dtype, one.shape) == (other.dtype, other.shape)
    return is_alike and bool((one == other.to(one.device)).all())


def _sums(model: Any) -> dict[str, int]:
    buffers = {name: one for name, one in model.named_buffers() if not one.is_meta}
    tensors = {**buffers, **model_memory.named(model), **kept.packed(model)}
    return {name: _sum(model_memory.bytes_of(one)) for name, one in tensors.items()}


def _sum(data: Any) -> int:
    return word_sum(data.cpu().numpy())


def _named(worker: Any) -> Iterable[tuple[str, Any]]:
    return model_memory.named(worker.get_model()).items()
