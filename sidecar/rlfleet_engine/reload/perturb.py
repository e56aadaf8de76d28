"""Changes a tensor's values, so that the self-test can see that a reload uses them.

The values depend only on the tensor's name, so that every rank makes the same.
"""

from hashlib import sha256
from typing import Any

import torch

_FLOATS = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16})


def is_random(tensor: Any) -> bool:
    """Return whether a changed tensor has random values, and not its own in another order."""
    return tensor.dtype in _FLOATS


def changed(name: str, tensor: Any, strength: float) -> Any:
    """Return a tensor of the same shape and dtype whose values are ``strength`` spreads away."""
    if not tensor.numel():
        return tensor
    if not is_random(tensor):
        # Packed, quantised and integer values stay valid, because they only move.
        return tensor.flatten().roll(1).reshape(tensor.shape)
    wide = tensor.float()
    step = strength * (wide.abs().mean() + wide.std(correction=0) + 1e-3)
    random = torch.Generator().manual_seed(_seed(name))
    return (wide + step * torch.randn(wide.shape, generator=random)).to(tensor.dtype)


def is_other(made: Any, tensor: Any) -> bool:
    """Return whether a changed tensor has other bytes; equal values that move do not show."""
    one, other = (found.reshape(-1).view(torch.uint8) for found in (made, tensor))
    return not torch.equal(one, other)


def _seed(name: str) -> int:
    return int.from_bytes(sha256(name.encode()).digest()[:4], "big")
