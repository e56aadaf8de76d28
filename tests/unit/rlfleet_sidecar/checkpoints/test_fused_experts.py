"""A version may hold experts fused or one by one where the engine's loader takes both."""

import pytest

from rlfleet_contract.engine.rank_report import Consumed
from rlfleet_contract.engine.safetensors import Tensor
from rlfleet_contract.engine.tensor_names import Experts, Renames, packed
from rlfleet_sidecar.checkpoints.compatibility import differences
from rlfleet_sidecar.state.required_tensors import RequiredTensors, reported_by
from tests.fakes.expert_layer import BOTH, PLACE

Tensors = dict[str, Tensor]
Shapes = dict[str, tuple[int, ...]]

COUNT, ROWS, COLUMNS = 3, 4, 6
TURNED = BOTH.model_copy(update={"transposed": True})
ROUTER: Shapes = {"model.layers.0.mlp.gate.weight": (COUNT, COLUMNS)}


def tensors(shapes: Shapes, dtype: str = "BF16") -> Tensors:
    return {name: Tensor(name, dtype, shape, 0, 0) for name, shape in shapes.items()}


def single(stem: str = PLACE, count: int = COUNT) -> Tensors:
    shapes: Shapes = {
        f"{stem}.{number}.{part}.weight": shape
        for number in range(count)
        for part, shape in (
            ("gate_proj", (ROWS, COLUMNS)),
            ("up_proj", (ROWS, COLUMNS)),
            ("down_proj", (COLUMNS, ROWS)),
        )
    }
    return tensors(shapes | ROUTER)


def fused(stem: str = PLACE, count: int = COUNT, dtype: str = "BF16") -> Tensors:
    shapes: Shapes = {
        f"{stem}.gate_up_proj": (count, 2 * ROWS, COLUMNS),
        f"{stem}.down_proj": (count, COLUMNS, ROWS),
    }
    return tensors(shapes | ROUTER, dtype)


def turned() -> Tensors:
    shapes: Shapes = {
        f"{PLACE}.gate_up_proj": (COUNT, COLUMNS, 2 * ROWS),
        f"{PLACE}.down_proj": (COUNT, ROWS, COLUMNS),
    }
    return tensors(shapes | ROUTER)


def needs(experts: Experts | None = BOTH, renames: Renames | None = None) -> RequiredTensors:
    return RequiredTensors("boot", (), tied=False, renames=renames, experts=experts)


@pytest.mark.parametrize(
    ("model", "found", "experts"),
    [
        (single(), fused(), BOTH),
        (fused(), single(), BOTH),
        (single(), turned(), TURNED),
        (turned(), single(), TURNED),
        (single(), fused(dtype="F32"), BOTH),
        (single(), single(), BOTH),
    ],
    ids=["fused", "separate", "fused turned", "apart again", "another float", "alike"],
)
def test_either_form_is_accepted_where_the_loader_takes_both(
    model: Tensors, found: Tensors, experts: Experts
) -> None:
    assert differences(model, found, needs(experts)) is None


def test_a_layer_that_the_version_names_otherwise_is_known_by_the_models_rules() -> None:
    renames = Renames(prefix=(("model.language_model.", "model."),))
    found = fused("model.language_model.layers.0.mlp.experts")

    assert differences(single(), found, needs(renames=renames)) is None


LACKS_ONE = {name: one for name, one in single().items() if ".1.up" not in name}


@pytest.mark.parametrize(
    ("model", "found", "expected"),
    [
        (single(), fused(count=2), "has shape [2, 8, 6], expected [3, 8, 6]"),
        (fused(), single(count=2), "3 missing tensors"),
        (fused(), single(count=4), "3 unknown tensors"),
        (fused(), LACKS_ONE, f"1 missing tensors: {PLACE}.1.up_proj.weight"),
        (single(), fused() | single(), "2 unknown tensors"),
        (single(), turned(), ", transposed"),
        (single(), {k: v for k, v in fused().items() if "down" not in k}, "1 missing tensors"),
        (LACKS_ONE, fused(), "experts are fused"),
    ],
)
def test_a_layer_holds_each_expert_in_one_form(
    model: Tensors, found: Tensors, expected: str
) -> None:
    assert expected in (differences(model, found, needs()) or "")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (needs(None), "vLLM's loader of this model does not load that form"),
        (
            RequiredTensors(None, (), tied=False),
            "the engine has not reported that it loads both forms",
        ),
    ],
)
def test_the_form_that_the_loader_does_not_take_is_refused_with_both_forms_and_the_way_out(
    said: RequiredTensors, why: str
) -> None:
    assert differences(single(), fused(), said) == (
        f"experts are fused ({PLACE}.down_proj), expected separate"
        f" ({PLACE}.0.down_proj.weight): {why}; write the version with the tensor names of"
        " the base model's files, as transformers' save_pretrained does"
    )
    assert "experts are separate" in (differences(fused(), single(), said) or "")


def test_ranks_of_a_pipeline_name_the_layers_that_each_has() -> None:
    layers = [BOTH.model_copy(update={"places": (f"layers.{n}",)}) for n in range(2)]
    ranks = [Consumed(names=packed("a"), ranks=2, experts=one) for one in layers]
    found = reported_by("boot", ["a"], ranks)

    assert found is not None
    assert found.experts == BOTH.model_copy(update={"places": ("layers.0", "layers.1")})


def test_ranks_that_do_not_agree_on_a_form_say_nothing_of_it() -> None:
    ranks = [Consumed(names=packed("a"), ranks=2, experts=one) for one in (BOTH, TURNED)]
    found = reported_by("boot", ["a"], ranks)

    assert found is not None
    assert found.experts is None
