"""Other values for a tensor, by which a test sees that a reload takes them up.

They depend on the tensor's name alone, so that every rank makes the same ones.
"""

from hashlib import sha256
from typing import Any

import torch

_FLOATS = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16})


def changed(name: str, tensor: Any, strength: float) -> Any:
    """Return a tensor of the same shape and dtype, ``strength`` times its spread away."""
    if not tensor.numel():
        return tensor
    if tensor.dtype not in _FLOATS:
        # Packed, quantised and integer values stay valid: they change places only.
        return tensor.flatten().roll(1).reshape(tensor.shape)
    wide = tensor.float()
    step = strength * (wide.abs().mean() + wide.std(correction=0) + 1e-3)
    random = torch.Generator().manual_seed(_seed(name))
    return (wide + step * torch.randn(wide.shape, generator=random)).to(tensor.dtype)


def _seed(name: str) -> int:
    return int.from_bytes(sha256(name.encode()).digest()[:4], "big")
