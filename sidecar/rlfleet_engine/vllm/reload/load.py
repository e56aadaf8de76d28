"""Loads a checkpoint's tensors into a running model (docs/decisions/0023-reload-on-cpu.md).

For a release with unknown names vLLM's own reload must be used; the self-test of the running
engine finds what that leaves out.
"""

from collections.abc import Iterable
from typing import Any

from vllm.config import set_current_vllm_config

from rlfleet_engine.reload.zeroed import ZeroedMemory
from rlfleet_engine.vllm.reload.loader_names import name_loaders

try:
    from rlfleet_engine.vllm.reload import again, layerwise
except ImportError:  # a release with other names
    again = layerwise = None  # type: ignore[assignment]


def load(worker: Any, tensors: Iterable[tuple[str, Any]], zeroed: ZeroedMemory) -> None:
    """Load a checkpoint's tensors into a worker's model, by the way that fits its device.

    ``zeroed`` has memory of the sizes of rooms(), or of some of them.
    """
    if again is None:
        worker.reload_weights(weights_iterator=tensors, is_checkpoint_format=True)
        return
    _load(worker, worker.get_model(), worker.model_config, tensors, zeroed)
    runner = worker.model_runner
    runner.reset_lora_state()
    runner.reset_encoder_cache()
    runner.reset_mm_cache()


def drafter_of(worker: Any) -> Any | None:
    """Return the model that proposes tokens, if its weights are in the base model's files.

    Multi-token prediction has such; a draft model with files of its own keeps its weights.
    """
    return worker.get_draft_model() if _draft_files(worker) == worker.model_config.model else None


def drafter_apart(worker: Any) -> Any | None:
    """Return the model that proposes tokens, if it has files of its own."""
    is_apart = _draft_files(worker) not in {None, worker.model_config.model}
    return worker.get_draft_model() if is_apart else None


def _draft_files(worker: Any) -> str | None:
    """Return the path of the drafter's files; None without one."""
    speculative = worker.vllm_config.speculative_config
    drafts = None if speculative is None else speculative.draft_model_config
    return None if again is None or drafts is None else str(drafts.model)


def load_drafter(worker: Any, drafter: Any, tensors: Iterable[tuple[str, Any]]) -> None:
    """Load the drafter's tensors. It shares layers with the model, whose load must come after."""
    config = worker.vllm_config.speculative_config.draft_model_config
    _load(worker, drafter, config, tensors, ZeroedMemory())


def _load(
    worker: Any, model: Any, config: Any, tensors: Iterable[tuple[str, Any]], zeroed: ZeroedMemory
) -> None:
    name_loaders(again.recorded(model))
    with set_current_vllm_config(worker.vllm_config):
        if _repeats_the_boot(worker, model):
            again.load(model, config, tensors, zeroed)
        else:
            layerwise.load(model, config, tensors)


def rooms(worker: Any) -> list[int]:
    """Return the sizes of the zeroed memory that a load will need, in bytes."""
    model = worker.get_model()
    return [] if again is None or not _repeats_the_boot(worker, model) else again.rooms(model)


def _repeats_the_boot(worker: Any, model: Any) -> bool:
    return worker.device.type == "cpu" and not _quantizes_while_loading(model)


def _quantizes_while_loading(model: Any) -> bool:
    methods = (getattr(layer, "quant_method", None) for layer in model.modules())
    return any(getattr(method, "uses_meta_device", False) for method in methods)
