"""Lets vLLM on a CPU treat weights as on a GPU, to test how they are reloaded there.

Kernels on a GPU read the model's own tensors, whose addresses CUDA graphs hold. So nothing may be
packed, and a reload goes layer by layer (rlfleet_engine/vllm/reload/layerwise.py). Kernels, streams
and graphs of a GPU are not tested by this, nor its quantised layouts.

vLLM may start ranks as new processes. It imports the worker extension in each before it makes the
model, so that importing this changes vLLM there.
"""

from typing import Any

import torch
from vllm.model_executor.layers import utils
from vllm.model_executor.layers.fused_moe.experts import cpu_moe
from vllm.model_executor.models.qwen2 import Qwen2ForCausalLM

from rlfleet_engine.vllm.reload import load
from rlfleet_engine.worker import ReloadExtension


class Extension(ReloadExtension):
    """rlfleet's own worker extension, of ranks that treat weights as on a GPU."""


def _use() -> None:
    utils.dispatch_cpu_unquantized_gemm = _read_plainly
    cpu_moe.CPUUnquantizedExperts.process_weights_after_loading = _pack_nothing
    cpu_moe.cpu_fused_moe = _Experts(cpu_moe.cpu_fused_moe)
    vars(load).update(_repeats_the_boot=_never)
    # Models of later releases have such a step (Kimi K3, Dots3-Note), and none of this one.
    Qwen2ForCausalLM.process_weights_after_loading = _double_norm


def _read_plainly(layer: Any, *_: Any, **__: Any) -> None:
    layer.cpu_linear = torch.nn.functional.linear


def _double_norm(model: Any) -> None:
    model.model.norm.weight.data.mul_(2)


def _never(*_: Any) -> bool:
    return False


def _pack_nothing(_experts: Any, _layer: Any) -> None: ...


class _Experts:
    """The kernel of experts, with a copy of the weights that is packed for this call."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __call__(self, *arguments: Any) -> None:
        output, states, w13, w2, *rest = arguments
        isa = rest[5]
        packed = (cpu_moe.cpu_prepack_moe_weight(one, isa) for one in (w13, w2))
        self._kernel(output, states, *packed, *rest)


_use()
