"""Which adapters go with a model, and when one may be touched: tables."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from rlfleet_contract.engine.safetensors import Tensor
from rlfleet_contract.worker.loaded_lora import AdapterReport
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.dialects.rules import UNNAMED, adapter_version
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.lora.compatibility import config_objection, objection, scaling_objection
from rlfleet_sidecar.lora.rules import (
    LoRAStep,
    demand_bare,
    demand_name,
    demand_rest,
    demand_undeclared,
    step_to,
)

CONFIG: dict[str, Any] = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q"]}
Q = "model.layers.0.self_attn.q_proj"
EXPERTS = "model.layers.0.mlp.experts"


def tensors(shapes: Mapping[str, tuple[int, ...]], dtype: str = "BF16") -> dict[str, Tensor]:
    return {name: Tensor(name, dtype, shape, 0, 0) for name, shape in shapes.items()}


MODEL = tensors(
    {
        f"{Q}.weight": (32, 16),
        "model.embed_tokens.weight": (100, 16),
        f"{EXPERTS}.gate_up_proj": (2, 16, 32),
        **{f"{EXPERTS.replace('0', '1')}.{n}.up_proj.weight": (16, 16) for n in range(3)},
        "lm_head.weight": (100, 16),
    }
)


def pair(module: str, outer: int = 32, inner: int = 16, rank: int = 4) -> dict[str, Tensor]:
    return tensors(
        {f"{module}.lora_A.weight": (rank, inner), f"{module}.lora_B.weight": (outer, rank)}
    )


GOOD: dict[str, tuple[dict[str, Tensor], dict[str, Any]]] = {
    "PEFT's names": (pair(f"base_model.model.{Q}"), {}),
    "bare names": (pair(Q), {}),
    "other words before the layers": (pair(Q.replace("model.", "model.language_model.")), {}),
    "a rank of its own": (pair(Q, rank=8), {"rank_pattern": {"q_proj": 8}}),
    "a rank by PEFT's expression": (
        pair(Q, rank=8),
        {"rank_pattern": {r"layers\.1\..*": 2, r"layers\.[0-3]\..*\.(q|v)_proj": 8, "q_proj": 3}},
    ),
    "a rank by an anchored expression": (
        pair(f"base_model.model.{Q}", rank=8),
        {"rank_pattern": {r"^model\.layers\.0\..*": 8}},
    ),
    "an alpha by two keys that agree": (
        pair(Q),
        {"alpha_pattern": {"q_proj": 16, "self_attn.q_proj": 16, "v_proj": 4}},
    ),
    "fused experts": (pair(EXPERTS, rank=8) | pair(f"{EXPERTS}.base_layer", rank=8), {}),
    "fused experts alone": (
        pair(EXPERTS, rank=8) | pair(f"{EXPERTS}.base_layer", rank=8),
        {"target_modules": [], "target_parameters": ["mlp.experts.gate_up_proj"]},
    ),
    "fused experts with ranks of their own": (
        pair(EXPERTS, rank=4) | pair(f"{EXPERTS}.base_layer", rank=16),
        {"rank_pattern": {"experts.gate_up_proj": 8, "experts.down_proj": 2}},
    ),
    "fused experts of separate ones": (
        pair(EXPERTS.replace("0", "1"), rank=12)
        | pair(f"{EXPERTS.replace('0', '1')}.base_layer", rank=12),
        {},
    ),
    "an embedding": (
        tensors(
            {
                "model.embed_tokens.lora_embedding_A": (4, 100),
                "model.embed_tokens.lora_embedding_B": (16, 4),
            }
        ),
        {},
    ),
}
BAD: dict[str, tuple[dict[str, Tensor], str]] = {
    "nothing": ({}, "no tensor"),
    "no pair": ({k: t for k, t in pair(Q).items() if "lora_A" in k}, "expected lora_A and lora_B"),
    "a layer too many": (pair(Q.replace("0", "9")), "not a module of the base model"),
    "another inner size": (pair(Q, inner=8), "(32, 8), expected (32, 16)"),
    "another outer size": (pair(Q, outer=8), "(8, 16), expected (32, 16)"),
    "another rank": (pair(Q, rank=5), "expected 4 by adapter_config.json"),
    "a whole weight": (tensors({f"{Q}.weight": (32, 16)}), "not a module's lora_A or lora_B"),
    "PEFT's copy of the embeddings": (
        tensors({"base_model.model.model.embed_tokens.base_layer.weight": (100, 16)}),
        "lora_B; save the adapter with save_embedding_layers=False",
    ),
    "PEFT's copy of the head": (
        tensors({"base_model.model.lm_head.weight": (100, 16)}),
        "lora_B; save the adapter with save_embedding_layers=False",
    ),
    "one matrix of fused experts": (
        pair(EXPERTS, rank=8),
        "has one of its two matrices; name gate_up_proj and down_proj in target_parameters",
    ),
    "fused experts of another rank": (
        pair(EXPERTS, rank=8) | pair(f"{EXPERTS}.base_layer", rank=2),
        "has rank 2 and 2, expected 8: 2 experts of rank 4 by adapter_config.json",
    ),
    "whole numbers": (
        {k: t._replace(dtype="I16") for k, t in pair(Q).items()},
        "floating-point",
    ),
    "an embedding the wrong way round": (
        tensors(
            {
                "model.embed_tokens.lora_embedding_A": (4, 16),
                "model.embed_tokens.lora_embedding_B": (100, 4),
            }
        ),
        "expected (16, 100)",
    ),
}


@pytest.mark.parametrize("case", GOOD)
def test_an_adapter_of_the_model_is_taken(case: str) -> None:
    found, fields = GOOD[case]

    assert config_objection(CONFIG | fields) is None
    assert objection(CONFIG | fields, found, MODEL) is None


def test_an_adapter_in_mlx_s_layout_is_rejected_with_the_way_out() -> None:
    config = {"fine_tune_type": "lora", "num_layers": 2, "lora_parameters": {"rank": 4}}

    assert "fuse the adapter (mlx_lm.fuse)" in (config_objection(config) or "")


@pytest.mark.parametrize("field", ["kasa_config", "monteclora_config", "velora_config"])
def test_a_variant_of_peft_s_is_named_by_its_field(field: str) -> None:
    assert (config_objection(CONFIG | {field: {"beta": 1}}) or "").startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("field", "is_kept"),
    [
        ("modules_to_save", True),
        ("trainable_token_indices", True),
        ("use_dora", True),
        # Active from some tokens on.
        ("alora_invocation_tokens", False),
    ],
)
def test_what_a_merge_keeps_is_rejected_with_that_way_out(field: str, *, is_kept: bool) -> None:
    why = config_objection(CONFIG | {field: ["embed_tokens"]}) or ""

    assert ("merge the adapter and load the model as a version" in why) is is_kept


def test_an_alpha_that_the_order_of_saved_keys_decides_is_rejected() -> None:
    patterns = {"alpha_pattern": {"layers.0.self_attn.q_proj": 8, "self_attn.q_proj": 64}}

    why = objection(CONFIG | patterns, pair(Q), MODEL)

    assert "by layers.0.self_attn.q_proj and self_attn.q_proj: PEFT sorts keys" in (why or "")


@pytest.mark.parametrize("case", BAD)
def test_an_adapter_of_another_model_is_rejected(case: str) -> None:
    found, why = BAD[case]

    assert why in (objection(CONFIG, found, MODEL) or "")


@pytest.mark.parametrize(
    "fields",
    [
        {"r": 0},
        {"r": True},
        {"r": "4"},
        {"r": None},
        {"lora_alpha": None},
        {"lora_alpha": float("nan")},
        {"lora_alpha": 0},
        {"target_modules": []},
        {"target_modules": 3},
        {"peft_type": "IA3"},
        {"bias": "all"},
        {"use_dora": True},
        {"lora_bias": True},
        {"modules_to_save": ["lm_head"]},
        {"trainable_token_indices": [1, 2]},
        {"trainable_token_indices": {"embed_tokens": [1]}},
        {"rank_pattern": {"q": 0}},
        {"rank_pattern": [1]},
        {"alpha_pattern": [1]},
        {"alpha_pattern": {"q": "8"}},
        {"alpha_pattern": {"q": 0}},
        {"rank_pattern": {"(q": 8}},
        {"alpha_pattern": {"(a+)+": 8}},
        {"init_lora_weights": "pissa"},
        {"init_lora_weights": "lora_ga"},
    ],
)
def test_a_configuration_that_vllm_does_not_serve_is_refused(fields: dict[str, Any]) -> None:
    assert next(iter(fields)) in (config_objection(CONFIG | fields) or "")


@pytest.mark.parametrize(
    ("fields", "is_alike"),
    [
        ({}, True),
        ({"rank_pattern": {"q": 8}}, False),
        ({"alpha_pattern": {"q": 8}}, False),
        ({"rank_pattern": {"q": 8}, "alpha_pattern": {"q": 16}}, True),
        ({"rank_pattern": {"q": 8}, "alpha_pattern": {"k": 16}}, False),
        ({"rank_pattern": {"q": 16}, "alpha_pattern": {"q": 16}, "use_rslora": True}, True),
    ],
)
def test_a_module_with_a_scaling_of_its_own_is_not_served_by_an_older_vllm(
    fields: dict[str, Any], *, is_alike: bool
) -> None:
    config = CONFIG | {"r": 4, "lora_alpha": 8} | fields

    assert config_objection(config) is None
    assert (scaling_objection(config) is None) is is_alike


def test_from_one_directory_to_the_next() -> None:
    way = [None, "/a", "/a", "/b", None, None]

    steps = [step_to(wanted, served) for served, wanted in pairwise(way)]

    assert steps == [
        LoRAStep.LOAD,
        LoRAStep.NOTHING,
        LoRAStep.REPLACE,
        LoRAStep.UNLOAD,
        LoRAStep.NOTHING,
    ]


@pytest.mark.parametrize("stage", Stage)
def test_adapters_are_touched_outside_of_changes_alone(stage: Stage) -> None:
    refusals = {Stage.DOWN: Code.ENGINE_UNREACHABLE, Stage.DOUBT: Code.ENGINE_IN_DOUBT}
    if stage in {Stage.OPEN, Stage.CLOSED}:
        demand_rest(stage)
        return
    with pytest.raises(SidecarError) as caught:
        demand_rest(stage)
    assert caught.value.code is refusals.get(stage, Code.BUSY)


@pytest.mark.parametrize("stage", Stage)
def test_the_caller_of_a_pause_may_load_one_while_its_weights_are_proved(
    stage: Stage,
) -> None:
    if stage in {Stage.OPEN, Stage.CLOSED, Stage.PAUSED, Stage.PROVED}:
        demand_rest(stage, is_leader=True)
        return
    with pytest.raises(SidecarError):
        demand_rest(stage, is_leader=True)


NAMES = [
    ("poet", False, None),
    ("poet", True, None),
    ("Qwen/Qwen3", False, None),
    ("Qwen/Qwen3", True, Code.ADAPTER_FAILED),
    ("Qwen/other", False, Code.INVALID_REQUEST),
    ("..", False, Code.INVALID_REQUEST),
]


@pytest.mark.parametrize(("name", "is_declared", "code"), NAMES)
def test_a_name_is_a_directory_s_or_the_model_s_and_that_is_a_trainer_s_to_lead(
    name: str, *, is_declared: bool, code: Code | None
) -> None:
    if code is None:
        demand_name(name, "Qwen/Qwen3", is_declared=is_declared)
        return
    with pytest.raises(SidecarError, match=name) as caught:
        demand_name(name, "Qwen/Qwen3", is_declared=is_declared)
    assert caught.value.code is code


def test_a_trainer_s_weights_are_refused_while_an_adapter_has_the_model_s_name() -> None:
    # One that never was loaded has nothing that could answer.
    demand_bare("m", [AdapterReport(name="poet", version="v1"), AdapterReport(name="m")])

    with pytest.raises(SidecarError, match="unload_lora_adapter"):
        demand_bare("m", [AdapterReport(name="m", version="v1")])


def test_one_adapter_of_the_spec_s_closes_the_trainers_routes() -> None:
    demand_undeclared([AdapterReport(name="a")])

    with pytest.raises(SidecarError, match=r"spec\.adapters") as caught:
        demand_undeclared([AdapterReport(name="a"), AdapterReport(name="b", is_declared=True)])
    assert caught.value.code is Code.ADAPTERS_OWNED


@pytest.mark.parametrize(
    ("directory", "version"),
    [("/w/step-5", "step-5"), ("/w/step-5/", "step-5"), ("/w/a b", UNNAMED), ("/", UNNAMED)],
)
def test_a_trainer_s_adapter_is_called_after_its_directory(directory: str, version: str) -> None:
    assert adapter_version(directory) == version
