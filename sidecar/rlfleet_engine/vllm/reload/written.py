"""Counts what is written into tensors, under whatever view and by whatever loader."""

from collections import Counter
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class Written(TorchDispatchMode):  # type: ignore[misc]
    """While it is entered, counts elements by the memory that they go to."""

    def __init__(self) -> None:
        super().__init__()
        self._elements: Counter[int] = Counter()

    def into(self, tensor: Any) -> int:
        """Return how many elements went into a tensor's memory; twice written counts twice."""
        return self._elements[_memory(tensor)]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Count the operation if it changes its first argument, and let it through."""
        if args and func._schema.is_mutable:
            self._elements[_memory(args[0])] += args[0].numel()
        return func(*args, **(kwargs or {}))


def _memory(tensor: Any) -> int:
    """Tell tensors apart by their storage's identity: on the meta device it has no address."""
    return int(tensor.untyped_storage()._cdata)
