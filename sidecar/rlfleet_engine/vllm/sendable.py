"""Which models keep old weights when a trainer sends new ones. Pure.

vLLM loads what is sent by its own layerwise reload, which this package cannot mend: the
trainer's call runs within vLLM's worker. What that reload loses is known from decision 23:
on a CPU, whatever kernels have packed; on any device, what a model copies into a parameter
without its loader, because such a copy goes to the meta device.
"""

from collections.abc import Iterable

_PAST_LOADERS = {
    "GptOssForCausalLM": "experts and attention sinks",
    "LongcatFlashNgramForCausalLM": "embeddings of n-grams",
    "MiMoV2FlashForCausalLM": "attention sinks",
    "MiMoV2ForCausalLM": "attention sinks",
    "MiMoV2OmniForCausalLM": "attention sinks",
}
"""Architectures of vLLM 0.32 that copy without a loader, and what."""


def objection(device: str, architectures: Iterable[str]) -> str | None:
    """Return what would keep its old weights; None if nothing is known to."""
    if device == "cpu":
        return "on a CPU, vLLM's layerwise reload loses what kernels have packed"
    lost = sorted({_PAST_LOADERS[name] for name in architectures if name in _PAST_LOADERS})
    return f"vLLM's layerwise reload leaves its {', '.join(lost)} as they were" if lost else None
