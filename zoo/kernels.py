"""Computes in torch what vLLM's build for this processor has no kernel for.

Quantised weights can be reloaded on any processor then. What is tested is how a model loads and
changes its weights; the kernels of a GPU are not.
"""

from typing import Any

import torch
from vllm import _custom_ops as ops
from vllm.model_executor.kernels.linear.scaled_mm.cpu import CPUFp8BlockScaledMMKernel

_FP8 = torch.float8_e4m3fn
_BITS, _NIBBLES, _BLOCK = 4, 8, 16
_ZERO = 8


def use() -> None:
    """Do so for every engine of this process, where a kernel is missing."""
    if not hasattr(torch.ops._C, "cpu_gemm_wna16"):  # noqa: SLF001 - where torch has the kernels
        vars(ops).update(cpu_gemm_wna16=_multiplied)
    vars(ops).update(scaled_fp8_quant=_to_fp8)
    if not torch.cpu._is_amx_tile_supported():  # noqa: SLF001 - as vLLM asks
        CPUFp8BlockScaledMMKernel.is_supported = _yes
        CPUFp8BlockScaledMMKernel.process_weights_after_loading = _leave
        CPUFp8BlockScaledMMKernel.apply_weights = _multiplied_by_blocks


def _yes(_capability: int | None = None) -> tuple[bool, str | None]:
    return True, None


def _leave(_kernel: Any, _layer: Any) -> None: ...


def _multiplied_by_blocks(kernel: Any, layer: Any, x: Any, bias: Any = None, **_: Any) -> Any:
    """Multiply by a weight of shape (outputs, inputs) that has a scale for each block."""
    rows, columns = kernel.weight_group_shape
    scale = layer.weight_scale_inv.repeat_interleave(rows, 0).repeat_interleave(columns, 1)
    weight = layer.weight.float() * scale[: layer.weight.shape[0], : layer.weight.shape[1]]
    return torch.nn.functional.linear(x, weight.to(x.dtype), bias)


def _to_fp8(values: Any, scale: Any, **_: Any) -> tuple[Any, Any]:
    """Quantise a weight with one scale."""
    most = torch.finfo(_FP8).max
    return (values.float() / scale).clamp(-most, most).to(_FP8), scale


def _multiplied(
    input: Any,  # noqa: A002
    q_weight: Any,
    scales: Any,
    zeros: Any,
    bias: Any,
    pack_factor: int,
    isa_hint: str,  # noqa: ARG001
) -> Any:
    """Multiply by a weight whose blocks of 16 outputs are packed in words of 4 bits."""
    groups, outputs = scales.shape
    words = q_weight.view(outputs // _BLOCK, -1, _BLOCK // pack_factor)
    values = _unpacked(words).flatten(2).permute(1, 0, 2).flatten(1)
    zero = _ZERO if zeros is None else _unpacked(zeros).flatten(1).unsqueeze(1)
    grouped = values.unflatten(0, (groups, -1)) - zero
    weight = (grouped * scales.unsqueeze(1)).flatten(0, 1)
    return torch.nn.functional.linear(input, weight.t().to(input.dtype), bias)


def _unpacked(words: Any) -> Any:
    return (words.unsqueeze(-1) >> torch.arange(0, _BITS * _NIBBLES, _BITS)) & (2**_BITS - 1)
