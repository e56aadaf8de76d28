"""Which modules of an adapter count as left out, by the manager that vLLM puts on its model."""

from types import SimpleNamespace
from typing import Any

from rlfleet_engine.vllm.adapter_modules import left_out, left_out_by_all

LAYER = "model.layers.0"


class Manager:
    """Has what vLLM 0.29 to 0.33 have: wrapped modules, and weights by their names."""

    def __init__(self, modules: list[str], loras: dict[str, object]) -> None:
        self.modules = dict.fromkeys(modules)
        self._adapter = SimpleNamespace(loras=loras)

    def get_adapter(self, number: int) -> Any:
        return self._adapter if number == 1 else None

    def _get_lora_layer_weights(self, adapter: Any, name: str) -> Any:
        # Of a pooling model the names may lack their first part.
        found = adapter.loras.get(name)
        return found if found is not None else adapter.loras.get(name.removeprefix("model."))


def test_modules_that_were_not_wrapped_are_left_out() -> None:
    wrapped = [f"{LAYER}.self_attn.qkv_proj", f"{LAYER}.mlp.experts", "model.score"]
    loras: dict[str, object] = {
        f"{LAYER}.self_attn.qkv_proj": object(),
        f"{LAYER}.self_attn.o_proj": object(),
        f"{LAYER}.mlp.experts": object(),
        f"{LAYER}.mlp.experts.base_layer": object(),
        "score": object(),
    }
    model = SimpleNamespace(lora_manager=Manager(wrapped, loras))

    assert left_out(model, 1) == [f"{LAYER}.self_attn.o_proj"]
    assert left_out(model, 2) == []
    assert left_out(SimpleNamespace(), 1) == []


def test_a_module_of_another_rank_is_not_left_out() -> None:
    assert left_out_by_all([["a", "b"], ["b", "c"]]) == ["b"]
    assert left_out_by_all([]) == []
