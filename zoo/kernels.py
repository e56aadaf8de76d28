"""Computes in torch what vLLM's build for this processor has no kernel for.

Quantised weights can be reloaded on any processor then, and experts that a sigmoid or a bias
selects. What is tested is how a model loads and changes its weights; a GPU's kernels are not.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from llvmlite.binding import ffi
from vllm import _custom_ops as ops
from vllm.model_executor.kernels.linear.scaled_mm.cpu import CPUFp8BlockScaledMMKernel
from vllm.model_executor.layers.fused_moe.experts import cpu_moe
from vllm.model_executor.layers.rotary_embedding.ernie45_vl_rope import Ernie4_5_VLRotaryEmbedding

try:
    from vllm.model_executor.layers.fused_moe.router.cpu_router import CPURouter
except ImportError:  # an older release, which routes elsewhere
    CPURouter = None

_FP8 = torch.float8_e4m3fn
_BITS, _NIBBLES, _BLOCK = 4, 8, 16
_ZERO = 8


def use() -> None:
    """Do so for every engine of this process, where a kernel is missing."""
    if not hasattr(torch.ops._C, "cpu_gemm_wna16"):  # noqa: SLF001 - where torch has the kernels
        vars(ops).update(cpu_gemm_wna16=_multiplied)
    vars(ops).update(scaled_fp8_quant=_to_fp8)
    library = type(ffi.lib)
    library.__getattr__ = _public(library.__getattr__)
    # A processor's passes an argument too many.
    Ernie4_5_VLRotaryEmbedding.forward_cpu = Ernie4_5_VLRotaryEmbedding.forward_cuda
    if CPURouter is not None:
        CPURouter.__init__ = _Grouping(CPURouter.__init__)
    if not torch.cpu._is_amx_tile_supported():  # noqa: SLF001 - as vLLM asks
        linear, experts = CPUFp8BlockScaledMMKernel, cpu_moe.CPUExpertsFp8
        linear.is_supported = _yes
        setattr(experts, "_supports_current_device", staticmethod(_always))  # noqa: B010 - private
        linear.process_weights_after_loading = _leave
        linear.apply_weights = _multiplied_by_blocks
        vars(cpu_moe).update(prepare_fp8_moe_layer_for_cpu=_both, fused_experts_cpu=_experts)


def _public(get: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    """Have a library answer no private name, which vLLM asks of all that it finds (Kimi K2.5)."""

    def answer(library: Any, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return get(library, name)

    return answer


class _Grouping:
    """Makes one group of experts where there is none.

    A processor has a sigmoid, and a bias that selects, for groups only.
    """

    def __init__(self, make: Any) -> None:
        self._make = make

    def __get__(self, router: Any, kind: Any) -> Any:
        """Return this as a method."""
        return partial(self, router)

    def __call__(self, router: Any, *arguments: Any, **named: Any) -> None:
        self._make(router, *arguments, **named)
        is_plain = not router.use_grouped_topk and router.custom_routing_function is None
        scores = {"sigmoid"} if router.e_score_correction_bias is None else {"sigmoid", "softmax"}
        if is_plain and router.scoring_func in scores:
            router.use_grouped_topk, router.num_expert_group, router.topk_group = True, 1, 1


def _yes(_capability: int | None = None) -> tuple[bool, str | None]:
    return True, None


def _leave(_kernel: Any, _layer: Any) -> None: ...


def _multiplied_by_blocks(kernel: Any, layer: Any, x: Any, bias: Any = None, **_: Any) -> Any:
    """Multiply by a weight of shape (outputs, inputs) that has a scale for each block."""
    weight = _wide(layer.weight, layer.weight_scale_inv, kernel.weight_group_shape)
    return torch.nn.functional.linear(x, weight.to(x.dtype), bias)


def _wide(weight: Any, scale: Any, block: Sequence[int]) -> Any:
    rows, columns = block
    each = scale.repeat_interleave(rows, 0).repeat_interleave(columns, 1)
    return weight.float() * each[: weight.shape[0], : weight.shape[1]]


def _always() -> bool:
    return True


def _both(w13: Any, w2: Any) -> tuple[Any, Any]:
    return w13, w2


def _experts(
    output: Any,
    states: Any,
    w13: Any,
    w2: Any,
    shares: Any,
    chosen: Any,
    _method: Any,
    w13_scale: Any,
    w2_scale: Any,
    _w13_zero: Any,
    _w2_zero: Any,
    block: Sequence[int],
    *_: Any,
) -> None:
    """Add up, for each token, what its experts compute; ``shares`` are their parts."""
    total = torch.zeros(states.shape)
    for expert in range(len(w13)):
        token, place = (chosen == expert).nonzero(as_tuple=True)
        both = states[token].float() @ _wide(w13[expert], w13_scale[expert], block).t()
        gate, up = both.chunk(2, dim=1)
        down = _wide(w2[expert], w2_scale[expert], block)
        made = (torch.nn.functional.silu(gate) * up) @ down.t()
        total.index_add_(0, token, made * shares[token, place, None])
    output.copy_(total)


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
