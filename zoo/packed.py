"""Lets vLLM pack linear layers on every processor, to test how packed layers are reloaded.

With AVX-512's instructions for bfloat16 oneDNN keeps a packed copy of each matrix, which nothing
can read, and the parameter is empty. Here the copy is the matrix turned, on other processors too.
"""

from typing import Any

import torch
from vllm.model_executor.layers import utils

from rlfleet_engine.vllm.reload import again

_MATRIX = 2


def use() -> None:
    """Do so for every engine of this process."""
    utils.dispatch_cpu_unquantized_gemm = _pack
    # Tiny models use prepared memory too.
    vars(again).update(SMALLEST=1)


class _Packed:
    """A matrix in a form of its own."""

    def __init__(self, weight: Any) -> None:
        self._turned = weight.detach().t().clone(memory_format=torch.contiguous_format)

    def __call__(self, x: Any, _weight: Any, bias: Any) -> Any:
        return torch.nn.functional.linear(x, self._turned.t(), bias)


def _pack(layer: Any, remove_weight: bool) -> None:  # noqa: FBT001 - vLLM passes it so
    if layer.weight.is_meta or layer.weight.dim() != _MATRIX:
        layer.cpu_linear = torch.nn.functional.linear
        return
    layer.cpu_linear = _Packed(layer.weight)
    if remove_weight:
        empty = torch.empty(0, dtype=layer.weight.dtype)
        layer.weight = torch.nn.Parameter(empty, requires_grad=False)
