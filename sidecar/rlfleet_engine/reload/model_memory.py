"""Reads what stands in one rank's memory, on CPU and GPU alike.

It sees the model's parameters and persistent buffers, byte for byte as they are served
from. What kernels keep elsewhere comes from vllm/reload/kept.py, as far as it can be read: what
oneDNN packs cannot, and ``share`` says how much of the model is seen. Quantised models are
not read: their layouts have room that nobody initialises. What is not seen is not claimed.

The digest is a sum of 64-bit words, each times an odd number of its own, modulo 2**64:
exact in any order, so CPU and GPU agree, and one changed word always shows. It finds
what an engine forgot to do; it is no defence against whoever can write the memory.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch

from rlfleet_engine.reload.read_back import Memory, ReadTensor

_WORD_BYTES = 8
_BLOCK_WORDS = 1 << 19
"""Words that share one row of factors; 4 MiB, which a processor's cache holds."""
_ROWS_AT_ONCE = 16
"""Blocks to a kernel on a GPU, where starting one costs more than its work."""
_MIXER = 0x9E3779B97F4A7C15 - (1 << 64)
_MASK = (1 << 64) - 1


def entry_of(tensor: Any) -> ReadTensor:
    """Read a tensor, wherever it lies."""
    nbytes = tensor.numel() * tensor.element_size()
    return ReadTensor(str(tensor.dtype), tuple(tensor.shape), nbytes, _digest(tensor.detach()))


def read(tensors: Mapping[str, Any]) -> Memory:
    """Read tensors by their names."""
    return {name: entry_of(tensor) for name, tensor in tensors.items()}


def named(model: Any) -> dict[str, Any]:
    """Tell a model's parameters and persistent buffers by name."""
    passing = {
        f"{path}.{name}" if path else name
        for path, module in model.named_modules()
        for name in module._non_persistent_buffers_set  # noqa: SLF001 - torch tells it nowhere else
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
    """Tell the tensor's elements in the order of memory; copies only what has gaps."""
    if tensor.is_contiguous():
        return tensor
    turned = tensor.permute(sorted(range(tensor.dim()), key=tensor.stride, reverse=True))
    return turned if turned.is_contiguous() else tensor.contiguous()


@cache
def _factors(device: Any) -> Any:
    """Make the odd numbers by which the words of a block are multiplied."""
    places = torch.arange(1, _BLOCK_WORDS + 1, dtype=torch.int64, device=device) * _MIXER
    return (places ^ (places >> 29)) | 1
