"""Computes in torch the experts for which vLLM has kernels of a GPU only.

Those of Nemotron 3 have no gate; some of LongCat do nothing. Their weights are loaded as on a GPU:
what is tested is that, and how they change.
"""

from functools import partial
from typing import Any

import torch
from vllm import _custom_ops as ops
from vllm.model_executor.layers.fused_moe.config import FusedMoEConfig
from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts

try:
    from vllm.model_executor.layers.fused_moe.router import zero_expert_router
except ImportError:  # an older release, which has it elsewhere
    zero_expert_router = None

_REFUSED = "is_act_and_mul=False"


def use() -> None:
    """Do so for every engine of this process."""
    experts = CPUUnquantizedExperts
    FusedMoEConfig.__post_init__ = _Lenient(FusedMoEConfig.__post_init__)
    experts.process_weights_after_loading = _Unless(experts.process_weights_after_loading, _leave)
    experts.apply = _Unless(experts.apply, _without_gate)
    for name in ("_supports_no_act_and_mul", "_supports_activation"):
        setattr(experts, name, staticmethod(_yes))
    vars(ops).update(topk_softmax=_chosen)
    if zero_expert_router is not None:
        vars(zero_expert_router).update(zero_experts_compute_triton=_of_idle_experts)


def _yes(*_: Any) -> bool:
    return True


class _Lenient:
    """Checks a layer's configuration, and lets one without a gate pass."""

    def __init__(self, check: Any) -> None:
        self._check = check

    def __get__(self, config: Any, kind: Any) -> Any:
        """Return this as a method."""
        return partial(self, config)

    def __call__(self, config: Any) -> None:
        try:
            self._check(config)
        except NotImplementedError as error:
            if _REFUSED not in str(error):
                raise


class _Unless:
    """A method of experts, and another one for those without a gate."""

    def __init__(self, gated: Any, ungated: Any) -> None:
        self._gated, self._ungated = gated, ungated

    def __get__(self, experts: Any, kind: Any) -> Any:
        """Return the experts' method."""
        chosen = self._gated if experts.moe_config.is_act_and_mul else self._ungated
        return partial(chosen, experts)


def _leave(_experts: Any, _layer: Any) -> None: ...


def _without_gate(_experts: Any, **named: Any) -> None:
    states, shares, chosen = (named[n] for n in ("hidden_states", "topk_weights", "topk_ids"))
    total = torch.zeros(named["output"].shape)
    for expert, (up, down) in enumerate(zip(named["w1"], named["w2"], strict=True)):
        token, place = (chosen == expert).nonzero(as_tuple=True)
        made = torch.relu(states[token].float() @ up.float().t()).square() @ down.float().t()
        total.index_add_(0, token, made * shares[token, place, None])
    named["output"].copy_(total)


def _chosen(
    shares: Any, chosen: Any, _: Any, logits: Any, renormalize: Any, bias: Any = None, **_more: Any
) -> None:
    """Choose experts by their biased probabilities."""
    odds = logits.float().softmax(-1)
    places = (odds if bias is None else odds + bias).topk(chosen.shape[-1], sorted=False).indices
    found = odds.gather(-1, places)
    chosen.copy_(places)
    shares.copy_(found / found.sum(-1, keepdim=True) if renormalize else found)


def _of_idle_experts(
    expert_indices: Any, expert_scales: Any, num_experts: int, hidden_states: Any, **_: Any
) -> Any:
    """Return what experts add that return what they get."""
    share = expert_scales.masked_fill(expert_indices < num_experts, 0).sum(-1, keepdim=True)
    return (hidden_states * share).to(hidden_states.dtype)
