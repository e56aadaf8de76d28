"""Only layers of experts that vLLM's own loader has filled are reported to take both forms."""

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from rlfleet_engine.vllm.reload.fused_experts import FilledExperts, experts_of, noted
from tests.fakes.expert_layer import BOTH, PLACE

FUSED = (
    ("experts.w13_weight", "experts.gate_up_proj", 0, "w1"),
    ("experts.w13_weight", "experts.gate_up_proj", 1, "w3"),
    ("experts.w2_weight", "experts.down_proj", 0, "w2"),
    ("experts.w13_", "experts.0.gate_up_proj.", 0, "w1"),
    ("experts.w13_", "experts.0.gate_up_proj.", 0, "w3"),
)
SINGLE = (
    ("experts.w13_", "experts.0.gate_proj.", 0, "w1"),
    ("experts.w2_", "experts.0.down_proj.", 0, "w2"),
    ("experts.w13_", "experts.0.up_proj.", 0, "w3"),
)


class Layer:
    """As much of vLLM's layer of experts as is asked."""

    is_fused_checkpoint_transposed = False

    def __init__(self, table: Iterable[Any] = FUSED + SINGLE) -> None:
        self.table = table

    def get_expert_mapping(self, *, include_fused: bool = False) -> Iterable[Any]:
        return self.table if include_fused else SINGLE

    def load_weights(self, weights: Iterable[tuple[str, Any]]) -> Iterator[str]:
        return (name for name, _ in weights)


class OldLayer(Layer):
    """Of a release whose loader knows no fused experts."""

    def get_expert_mapping(self) -> Iterable[Any]:  # type: ignore[override]
        return SINGLE


def model(layer: object) -> SimpleNamespace:
    named = {f"{PLACE}.routed_experts": layer, "lm_head": object()}
    return SimpleNamespace(
        named_modules=lambda: list(named.items()), modules=lambda: list(named.values())
    )


def filled(layer: Layer) -> list[FilledExperts]:
    made: list[FilledExperts] = []
    with noted(model(layer), made):
        assert list(layer.load_weights([("0.gate_proj.weight", None)])) == ["0.gate_proj.weight"]
    return made


def test_a_layer_that_was_filled_is_reported_with_both_forms() -> None:
    layer = Layer()

    assert experts_of(model(layer), filled(layer)) == BOTH
    assert "load_weights" not in vars(layer)


def test_a_layer_that_the_model_fills_past_the_loader_is_not_reported() -> None:
    layer, made = Layer(), list[FilledExperts]()
    with noted(model(layer), made):
        pass

    assert experts_of(model(layer), made) is None


def test_a_drafters_layer_is_not_the_models() -> None:
    assert experts_of(model(Layer()), filled(Layer())) is None


@pytest.mark.parametrize(
    "layer",
    [
        OldLayer(),
        Layer(SINGLE),
        Layer([("experts.w13_weight", "experts.up_proj", 0, "w1"), *FUSED[2:3], *SINGLE]),
    ],
    ids=["an older release", "no fused names", "no gate"],
)
def test_a_layer_that_takes_one_form_is_not_reported(layer: Layer) -> None:
    assert experts_of(model(layer), filled(layer)) is None
