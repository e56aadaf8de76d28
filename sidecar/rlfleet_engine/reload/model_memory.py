"""Digests the weights in one rank's memory, on CPU and GPU.

It reads the model's parameters and persistent buffers, byte for byte as the engine uses them.
vllm/reload/kept.py adds what kernels keep elsewhere, except what oneDNN packs; a report states
how many bytes are unseen. Quantised models are not read, because their layouts have padding that
is never initialised. A report must claim nothing about bytes that were not read.

The digest is a sum of 64-bit words, each times its own odd factor, modulo 2**64. The sum is exact
in any order, so CPU and GPU agree, and one changed word always shows. It detects faults of an
engine, not an attack on its memory.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch

from rlfleet_engine.reload.read_back import Memory, ReadTensor

_WORD_BYTES = 8
_BLOCK_WORDS = 1 << 19
"""Words per row of factors: 4 MiB, which fit into a processor's cache."""
_ROWS_AT_ONCE = 16
"""Blocks per kernel on a GPU, where a launch costs more than the work."""
_MIXER = 0x9E3779B97F4A7C15 - (1 << 64)
_MASK = (1 << 64) - 1


def entry_of(tensor: Any) -> ReadTensor:
    """Return dtype, shape, size and digest of a tensor on any device."""
    nbytes = tensor.numel() * tensor.element_size()
    return ReadTensor(str(tensor.dtype), tuple(tensor.shape), nbytes, _digest(tensor.detach()))


def read(tensors: Mapping[str, Any]) -> Memory:
    """Return the same of named tensors."""
    return {name: entry_of(tensor) for name, tensor in tensors.items()}


def named(model: Any) -> dict[str, Any]:
    """Return a model's parameters and persistent buffers by name."""
    passing = {
        f"{path}.{name}" if path else name
        for path, module in model.named_modules()
        for name in module._non_persistent_buffers_set  # noqa: SLF001 - torch has no public name for it
    }
    buffers = {name: b for name, b in model.named_buffers() if name not in passing}
    return {**dict(model.named_parameters()), **buffers}


def _digest(tensor: Any) -> int:
    data = _dense(tensor).reshape(-1).view(torch.uint8)
    whole = data.numel() // _WORD_BYTES * _WORD_BYTES
    head = data[:whole]
    words = (head.clone() if head.storage_offset() % _WORD_BYTES else head).view(torch.int64)
    factors = _factors(words.device)
    blocks = words.numel() // _BLOCK_WORDS
    rows = 1 if words.device.type == "cpu" else _ROWS_AT_ONCE
    sums = [
        (some * factors).sum(dim=1)
        for some in words[: blocks * _BLOCK_WORDS].view(blocks, _BLOCK_WORDS).split(rows)
        if some.numel()
    ]
    rest = words[blocks * _BLOCK_WORDS :]
    sums.append((rest * factors[: rest.numel()]).sum().reshape(1))
    total = int.from_bytes(bytes(data[whole:].tolist()), "little")
    for number in torch.cat(sums).tolist():
        total = (total * (2 * _BLOCK_WORDS + 1) + number) & _MASK
    return total


def _dense(tensor: Any) -> Any:
    """Return the tensor's elements in the order of memory; copies only a tensor with gaps."""
    if tensor.is_contiguous():
        return tensor
    turned = tensor.permute(sorted(range(tensor.dim()), key=tensor.stride, reverse=True))
    return turned if turned.is_contiguous() else tensor.contiguous()


@cache
def _factors(device: Any) -> Any:
    """Return the odd factors of a block's words."""
    places = torch.arange(1, _BLOCK_WORDS + 1, dtype=torch.int64, device=device) * _MIXER
    return (places ^ (places >> 29)) | 1
