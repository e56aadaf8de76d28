"""Which models keep some old weights when a trainer sends new ones directly. Pure.

vLLM loads sent weights by its own layerwise reload inside its worker, where this package cannot
correct it. Decision 23 says what that reload loses: on a CPU the weights that kernels have
packed; on any device those that a model copies into a parameter without its loader, because such
a copy goes to the meta device.
"""

from collections.abc import Iterable

_PAST_LOADERS = {
    "GptOssForCausalLM": "experts and attention sinks",
    "LongcatFlashNgramForCausalLM": "embeddings of n-grams",
    "MiMoV2FlashForCausalLM": "attention sinks",
    "MiMoV2ForCausalLM": "attention sinks",
    "MiMoV2OmniForCausalLM": "attention sinks",
}
"""Architectures of vLLM 0.32 with such copies, and the weights concerned."""


def objection(device: str, architectures: Iterable[str]) -> str | None:
    """Return which weights would stay old; None if none are known."""
    if device == "cpu":
        return "on a CPU, vLLM's layerwise reload loses what kernels have packed"
    lost = sorted({_PAST_LOADERS[name] for name in architectures if name in _PAST_LOADERS})
    return f"vLLM's layerwise reload leaves its {', '.join(lost)} as they were" if lost else None
