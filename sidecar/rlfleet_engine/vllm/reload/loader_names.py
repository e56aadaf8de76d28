"""Names the loaders of weights: vLLM's reload asks each for its name, which some have not.

A partial function has none: that of MiniMax-M2's norms, and of quantised attention.
"""

from collections.abc import Iterable
from typing import Any

_LOADER, _NAME = "weight_loader", "__name__"


def name_loaders(tensors: Iterable[Any]) -> None:
    """Name the loader of each tensor that has one without a name."""
    for tensor in tensors:
        loader = getattr(tensor, _LOADER, None)
        if loader is not None and not hasattr(loader, _NAME):
            setattr(loader, _NAME, type(loader).__name__)
