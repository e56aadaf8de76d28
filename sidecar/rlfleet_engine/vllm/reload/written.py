"""Counts elements written into tensors, through any view and by any loader."""

from collections import Counter
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


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
