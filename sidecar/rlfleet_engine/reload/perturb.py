"""Changes a tensor's values, so that the self-test can see that a reload uses them.

The values depend only on the tensor's name, so that every rank makes the same.
"""

from hashlib import sha256
from typing import Any

import torch

_PERIOD = 1_000_003
"""A large tensor gets so many random values again and again, because to draw them is what takes
long; a prime, so that rows differ."""
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
    values = tensor.reshape(-1)
    some = values[:: max(1, values.numel() // _PERIOD)].float()
    step = strength * (some.abs().mean() + some.std(correction=0) + 1e-3)
    random = torch.Generator().manual_seed(_seed(name))
    noise = step * torch.randn(min(_PERIOD, values.numel()), generator=random)
    made, noise = torch.empty_like(values), noise.to(tensor.dtype)
    for part, into in zip(values.split(_PERIOD), made.split(_PERIOD), strict=True):
        torch.add(part, noise[: part.numel()], out=into)
    return made.reshape(tensor.shape)


def is_other(made: Any, tensor: Any) -> bool:
    """Return whether a changed tensor has other bytes; equal values that move do not show."""
    one, other = (found.reshape(-1).view(torch.uint8) for found in (made, tensor))
    return not torch.equal(one, other)


def _seed(name: str) -> int:
    return int.from_bytes(sha256(name.encode()).digest()[:4], "big")
