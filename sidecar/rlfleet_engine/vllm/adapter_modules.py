"""Which modules of a loaded LoRA adapter an engine leaves out.

vLLM computes with those that it wrapped when it booted, by --lora-target-modules, and ignores the
others without an error: the answers are then neither the adapter's nor the model's.
"""

from collections.abc import Sequence
from typing import Any

_INNER = ".base_layer"
"""PEFT's name for one of two matrices of fused experts."""


def left_out(model: Any, number: int) -> list[str]:
    """Return the modules of an adapter with which this rank does not compute.

    ``number`` is vLLM's lora_int_id. Without adapters, or with another vLLM, none is known.
    """
    manager: Any = getattr(model, "lora_manager", None)
    if manager is None or (adapter := manager.get_adapter(number)) is None:
        return []
    weights_of = manager._get_lora_layer_weights
    used = {id(weights_of(adapter, name)) for name in manager.modules}
    return sorted(
        name
        for name, weights in adapter.loras.items()
        if id(weights) not in used and name.removesuffix(_INNER) not in manager.modules
    )


def left_out_by_all(ranks: Sequence[Sequence[str]]) -> list[str]:
    """Return what no rank computes with: each has only its own layers."""
    if not ranks:
        return []
    return sorted(set(ranks[0]).intersection(*ranks[1:]))
