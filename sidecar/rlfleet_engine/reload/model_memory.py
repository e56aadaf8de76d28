"""Digests the weights in one rank's memory, on CPU and GPU.

It reads the model's parameters and persistent buffers, byte for byte as the engine uses them.
vllm/reload/kept.py adds what kernels keep elsewhere, except what oneDNN packs; a report states
how many bytes are unseen. Quantised models are not read, because their layouts have padding that
is never initialised. A report must claim nothing about bytes that were not read.
"""

import os
from collections.abc import Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import cache
from typing import Any

import torch

from rlfleet_engine.reload.checked_file import unbind
from rlfleet_engine.reload.read_back import Memory, ReadTensor
from rlfleet_engine.reload.word_sum import BLOCK_WORDS, WORD_BYTES, combined, factors, word_sum

_THREADS = 4
_ROWS_AT_ONCE = 16
"""Blocks per kernel on a GPU, where a launch costs more than the work."""


def entry_of(tensor: Any, known: int | None = None) -> ReadTensor:
    """Return dtype, shape, size and digest of a tensor on any device."""
    nbytes = tensor.numel() * tensor.element_size()
    digest = _digest(bytes_of(tensor)) if known is None else known
    return ReadTensor(str(tensor.dtype), tuple(tensor.shape), nbytes, digest)


def read(tensors: Mapping[str, Any]) -> Memory:
    """Return the same of named tensors; on a CPU with all cores, which a paused engine leaves."""
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1), "rlfleet-sum", unbind) as pool:
        begun = {name: _begun(tensor, pool) for name, tensor in tensors.items()}
        return {name: entry_of(tensor, begun[name].result()) for name, tensor in tensors.items()}


def named(model: Any) -> dict[str, Any]:
    """Return a model's parameters and persistent buffers by name, of the parts that it has.

    A text-only engine has its towers' own parameters on the meta device, without memory.
    """
    passing = {
        f"{path}.{name}" if path else name
        for path, module in model.named_modules()
        for name in module._non_persistent_buffers_set  # noqa: SLF001 - torch has no public name for it
    }
    buffers = {name: b for name, b in model.named_buffers() if name not in passing}
    tensors = {**dict(model.named_parameters()), **buffers}
    return {name: tensor for name, tensor in tensors.items() if not tensor.is_meta}


def bytes_of(tensor: Any) -> Any:
    """Return a tensor's bytes, beginning at a whole word."""
    data = _dense(tensor.detach()).reshape(-1).view(torch.uint8)
    return data.clone() if data.storage_offset() % WORD_BYTES else data


def _begun(tensor: Any, pool: Executor) -> Future[int]:
    data = bytes_of(tensor)
    if data.device.type == "cpu" and data.data_ptr() == tensor.data_ptr():
        return pool.submit(_digest, data)
    # A copy must be gone before the next one, and torch has its own threads elsewhere.
    done: Future[int] = Future()
    done.set_result(_digest(data))
    return done


def _digest(data: Any) -> int:
    if data.device.type == "cpu":
        return word_sum(data.numpy())
    return sum_on_device(data)


def sum_on_device(data: Any) -> int:
    """Return word_sum's number, computed on the device that the bytes are on."""
    whole = data.numel() // WORD_BYTES * WORD_BYTES
    words, own = data[:whole].view(torch.int64), _factors(data.device)
    blocks = words.numel() // BLOCK_WORDS
    sums = [
        (some * own).sum(dim=1)
        for some in words[: blocks * BLOCK_WORDS].view(blocks, BLOCK_WORDS).split(_ROWS_AT_ONCE)
        if some.numel()
    ]
    rest = words[blocks * BLOCK_WORDS :]
    sums.append((rest * own[: rest.numel()]).sum().reshape(1))
    return combined(torch.cat(sums).tolist(), bytes(data[whole:].tolist()))


def _dense(tensor: Any) -> Any:
    """Return the tensor's elements in the order of memory; copies only a tensor with gaps."""
    if tensor.is_contiguous():
        return tensor
    turned = tensor.permute(sorted(range(tensor.dim()), key=tensor.stride, reverse=True))
    return turned if turned.is_contiguous() else tensor.contiguous()


@cache
def _factors(device: Any) -> Any:
    return torch.from_numpy(factors()).to(device)
