"""config.json as the Hub has it, and as transformers' own save_pretrained writes it.

Each file in configs/ holds one real model's: `hub` as published, `saved` as transformers 5.19
saves what it read of that, and both as it parses them.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlfleet_sidecar.checkpoints import config_rules

FILES = sorted((Path(__file__).parent / "configs").glob("*.json"))
Nested = dict[str, Any]
RAW, PARSED = "", "parsed_"
FORMS = pytest.mark.parametrize("form", [RAW, PARSED], ids=["raw", "parsed"])
FLAT = ("Qwen2.5-VL-3B", RAW)
"""Nested once it is saved again: only transformers knows that the two are one."""


def files_of(path: Path, form: str) -> tuple[Nested, Nested]:
    held = json.loads(path.read_text())
    return held[f"{form}hub"], held[f"{form}saved"]


def of(model: str, form: str = RAW) -> tuple[Nested, Nested]:
    return files_of(Path(__file__).parent / "configs" / f"{model}.json", form)


def differences(model: Nested, found: Nested, form: str) -> str | None:
    return config_rules.differences(model, found, parsed=form == PARSED)


def text(config: Nested) -> Nested:
    """Return the part that describes the language model."""
    nested = config.get("text_config")
    return nested if isinstance(nested, dict) else config


@FORMS
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_config_that_transformers_wrote_again_is_accepted(path: Path, form: str) -> None:
    hub, saved = files_of(path, form)

    assert differences(hub, saved, form) is None
    assert differences(saved, hub, form) is None
    assert config_rules.code_objection(hub, saved) is None


@FORMS
@pytest.mark.parametrize("key", ["num_hidden_layers", "hidden_size"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_config_of_another_model_is_refused_and_the_key_is_named(
    path: Path, key: str, form: str
) -> None:
    hub, saved = files_of(path, form)
    place = key if text(saved) is saved else f"text_config.{key}"
    text(saved)[key] += 1
    expected = f"{place} is {text(saved)[key]}, expected {text(saved)[key] - 1}"

    assert differences(hub, saved, form) == (None if (path.stem, form) == FLAT else expected)


@FORMS
@pytest.mark.parametrize(
    ("model", "change", "expected"),
    [
        ("Qwen2.5-0.5B", lambda c: c["rope_parameters"].update(rope_theta=1e4), "rope_theta is"),
        ("Llama-3.1-8B", lambda c: c["rope_parameters"].update(factor=2.0), "factor is 2.0"),
        ("Llama-3.1-8B", lambda c: c["rope_parameters"].update(rope_type="yarn"), "is 'yarn'"),
        ("Llama-3.1-8B", lambda c: c.update(max_position_embeddings=7), "positions"),
        ("Mistral-7B-v0.1", lambda c: c.update(sliding_window=None), "sliding_window is None"),
        ("gpt-oss-20b", lambda c: c.update(swiglu_limit=3.0), "swiglu_limit is 3.0"),
        ("gpt-oss-20b", lambda c: c["rope_parameters"].pop("truncate"), "truncate is True"),
        (
            "gpt-oss-20b",
            lambda c: c["rope_parameters"].update(attention_factor=2.0),
            "attention_factor is 2.0, expected None",
        ),
        (
            "DeepSeek-V3",
            lambda c: c["rope_parameters"].pop("mscale_all_dim"),
            "mscale_all_dim is 0",
        ),
        ("Qwen3-VL-4B", lambda c: c["vision_config"].update(depth=9), "vision_config.depth is 9"),
        ("DeepSeek-V3", lambda c: c.update(routed_scaling_factor=1.0), "routed_scaling_factor"),
        ("Qwen3-0.6B", lambda c: c.update(architectures=["QwenX"]), "architectures is ['QwenX']"),
        ("Qwen3-0.6B", lambda c: c.update(model_type="qwen9"), "model_type is 'qwen9'"),
    ],
)
def test_what_changes_how_weights_are_used_is_refused(
    model: str, change: Callable[[Nested], object], expected: str, form: str
) -> None:
    hub, saved = of(model, form)
    change(saved)

    found = differences(hub, saved, form)

    assert found is not None
    assert expected.replace("positions", "max_position_embeddings is 7") in found


@FORMS
@pytest.mark.parametrize(
    ("model", "change"),
    [
        ("gpt-oss-20b", lambda rope: rope.pop("beta_fast")),
        ("gpt-oss-20b", lambda rope: rope.update(beta_slow=None, attention_factor=None)),
        ("DeepSeek-V3", lambda rope: rope.update(truncate=True)),
    ],
)
def test_a_rope_may_state_or_lack_a_default(
    model: str, change: Callable[[Nested], object], form: str
) -> None:
    hub, saved = of(model, form)
    change(saved["rope_parameters"])

    assert differences(hub, saved, form) is None
    assert differences(saved, hub, form) is None


@FORMS
@pytest.mark.parametrize(
    "change",
    [
        {"bos_token_id": 7, "eos_token_id": [7], "pad_token_id": 7},
        {"dtype": "float32", "torch_dtype": "float32"},
        {"use_cache": False, "transformers_version": "9", "_name_or_path": "x"},
        {"attention_dropout": 0.1, "router_aux_loss_coef": 0.1, "initializer_range": 1.0},
        {"max_position_embeddings": 2048},
        {"output_attentions": True, "output_hidden_states": True, "output_router_logits": True},
        {"architectures": ["FSDPQwen3ForCausalLM"]},
    ],
)
def test_what_has_no_part_in_it_may_differ(change: Nested, form: str) -> None:
    hub, saved = of("Qwen3-0.6B", form)

    assert differences(hub, saved | change, form) is None


@pytest.mark.parametrize(
    ("hub", "saved"),
    [
        ("Qwen2_5OmniModel", "Qwen2_5OmniForConditionalGeneration"),
        ("ChatGLMModel", "ChatGLMForConditionalGeneration"),
        ("PhiMoEForCausalLM", "PhimoeForCausalLM"),
        ("LightOnOCRForConditionalGeneration", "LightOnOcrForConditionalGeneration"),
        ("KimiK25ForConditionalGeneration", "Kimi_K25ForConditionalGeneration"),
    ],
)
def test_a_class_that_the_hub_names_otherwise_than_transformers_is_one(
    hub: str, saved: str
) -> None:
    ours, theirs = {"architectures": [hub]}, {"architectures": [saved]}

    assert differences(ours, theirs, PARSED) is None
    assert config_rules.are_one(ours, theirs)


@pytest.mark.parametrize(
    ("key", "ours", "theirs"),
    [
        # Training without speech: vLLM computes with the thinker alone.
        ("enable_audio_output", True, False),
        ("enable_talker", True, False),
        # ms-swift writes into these which kernels it trained with.
        ("use_flash_attn", True, False),
        ("attn_implementation", "flash_attention_2", "sdpa"),
        ("llm_attn_implementation", "flash_attention_2", "sdpa"),
    ],
)
def test_what_a_trainer_left_out_or_computed_with_has_no_part(
    key: str, ours: object, theirs: object
) -> None:
    assert (
        differences({"vision_config": {key: ours}}, {"vision_config": {key: theirs}}, RAW) is None
    )
    assert config_rules.are_one({key: ours}, {key: theirs})


@pytest.mark.parametrize(
    "key", ["output_multiplier", "output_mult", "output_logit_soft_cap", "output_gate_type"]
)
def test_what_is_done_to_a_model_s_output_counts(key: str) -> None:
    ours, theirs = {"text_config": {key: 0.2}}, {"text_config": {key: 1.0}}

    assert differences(ours, theirs, PARSED) == f"text_config.{key} is 1.0, expected 0.2"
    assert not config_rules.are_one(ours, theirs)


@pytest.mark.parametrize(
    "key", ["num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers"]
)
def test_a_trainer_without_the_layers_that_propose_tokens_may_say_so(key: str) -> None:
    assert differences({"text_config": {key: 1}}, {"text_config": {key: 0}}, PARSED) is None
    assert config_rules.are_one({key: 1}, {key: 0})


QUANTISED: dict[str, Nested] = {
    "LLM Compressor": {
        "quant_method": "compressed-tensors",
        "version": "0.13.0",
        "config_groups": {
            "group_0": {"weights": {"num_bits": 4, "group_size": 128, "observer": "minmax"}}
        },
    },
    "GPTQModel": {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": 128,
        "meta": {"quantizer": ["gptqmodel:7.6.0"], "offload_to_disk_path": "gptqmodel_ehjq6szg"},
    },
    "AutoRound": {
        "quant_method": "auto-round",
        "bits": 4,
        "group_size": 128,
        "autoround_version": "0.13.0",
        "iters": 200,
    },
    "Model Optimizer": {
        "quant_method": "modelopt",
        "group_size": 16,
        "producer": {"name": "modelopt", "version": "0.29.0"},
    },
    "AutoAWQ": {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"},
}
OTHER_RUN: dict[str, Nested] = {
    "LLM Compressor": {
        "version": "0.19.0",
        "config_groups": {
            "group_0": {"weights": {"num_bits": 4, "group_size": 128, "observer": "mse"}}
        },
    },
    "GPTQModel": {
        "meta": {"quantizer": ["gptqmodel:7.7.0"], "offload_to_disk_path": "gptqmodel_t5leo9it"}
    },
    "AutoRound": {"autoround_version": "0.14.1", "iters": 1000},
    "Model Optimizer": {"producer": {"name": "modelopt", "version": "0.31.0"}},
}


@FORMS
@pytest.mark.parametrize("tool", OTHER_RUN)
def test_another_run_or_release_of_a_quantising_tool_is_no_difference(tool: str, form: str) -> None:
    hub, saved = of("Qwen3-0.6B", form)
    ours = hub | {"quantization_config": QUANTISED[tool]}
    theirs = saved | {"quantization_config": QUANTISED[tool] | OTHER_RUN[tool]}

    assert differences(ours, theirs, form) is None


@FORMS
@pytest.mark.parametrize(
    ("tool", "key"),
    [
        ("slime", "modules_to_not_convert"),
        ("LLM Compressor", "ignore"),
        ("Model Optimizer", "exclude_modules"),
    ],
)
def test_the_order_of_modules_that_are_not_quantised_is_no_difference(
    tool: str, key: str, form: str
) -> None:
    hub, saved = of("Qwen3-0.6B", form)
    quantised = QUANTISED.get(tool, {"quant_method": "fp8", "weight_block_size": [128, 128]})
    ours = hub | {"quantization_config": quantised | {key: ["lm_head", "model.norm"]}}
    theirs = saved | {"quantization_config": quantised | {key: ["model.norm", "lm_head"]}}

    assert differences(ours, theirs, form) is None


@FORMS
@pytest.mark.parametrize(
    ("tool", "change", "expected"),
    [
        ("GPTQModel", {"group_size": 64}, "quantization_config.group_size is 64"),
        ("AutoAWQ", {"version": "gemv"}, "quantization_config.version is 'gemv'"),
        (
            "LLM Compressor",
            {"config_groups": {"group_0": {"weights": {"num_bits": 8}}}},
            "num_bits is 8",
        ),
    ],
)
def test_weights_that_are_quantised_in_another_way_are_refused(
    tool: str, change: Nested, expected: str, form: str
) -> None:
    hub, saved = of("Qwen3-0.6B", form)
    ours = hub | {"quantization_config": QUANTISED[tool]}
    theirs = saved | {"quantization_config": QUANTISED[tool] | change}

    assert expected in (differences(ours, theirs, form) or "")


def test_a_default_that_is_left_out_counts_once_both_are_parsed() -> None:
    hub, saved = of("gemma-2-2b", PARSED)
    assert "tie_word_embeddings" not in of("gemma-2-2b")[0]
    saved["tie_word_embeddings"] = False

    found = differences(hub, saved, PARSED)

    assert found == "tie_word_embeddings is False, expected True"


def test_code_that_the_boot_model_names_too_is_no_objection() -> None:
    hub = {"auto_map": {"AutoConfig": "configuration_x.X"}}
    same = {"auto_map": {"AutoConfig": "owner/repository--configuration_x.X"}}
    other = {"auto_map": {"AutoConfig": "configuration_y.Y"}}

    assert config_rules.code_objection(hub, same) is None
    assert config_rules.code_objection(hub, {}) is None
    assert "auto_map" in (config_rules.code_objection(hub, other) or "")
    assert "auto_map" in (config_rules.code_objection({}, hub) or "")


@pytest.mark.parametrize("parsed", [True, False])
@pytest.mark.parametrize("part", ["input_activations", "output_activations"])
def test_a_part_of_a_quantisation_that_one_config_has_and_the_other_leaves_null_counts(
    part: str, *, parsed: bool
) -> None:
    """FP8 weights have the same tensors, whether activations are quantised or not."""

    def scheme(value: object) -> dict[str, object]:
        group = {"weights": {"num_bits": 8}, part: value}
        return {"quantization_config": {"config_groups": {"group_0": group}}}

    plain, dynamic = scheme(None), scheme({"num_bits": 8, "dynamic": True})

    for ours, theirs in ((plain, dynamic), (dynamic, plain)):
        why = config_rules.differences(ours, theirs, parsed=parsed)
        assert why is not None
        assert why.startswith(f"quantization_config.config_groups.group_0.{part} is ")
    assert config_rules.differences(plain, plain, parsed=parsed) is None
    assert config_rules.differences(plain, scheme({}), parsed=parsed) is None


@pytest.mark.parametrize("parsed", [True, False])
@pytest.mark.parametrize("part", ["input_activations", "output_activations"])
def test_a_part_of_a_quantisation_that_one_config_leaves_out_is_null_in_it(
    part: str, *, parsed: bool
) -> None:
    """As ModelOpt leaves it out; compressed-tensors writes null."""

    def scheme(**parts: object) -> dict[str, object]:
        group = {"weights": {"num_bits": 8}, **parts}
        return {"quantization_config": {"config_groups": {"group_0": group}}}

    plain, dynamic = scheme(), scheme(**{part: {"num_bits": 8, "dynamic": True}})

    for ours, theirs in ((plain, dynamic), (dynamic, plain)):
        why = config_rules.differences(ours, theirs, parsed=parsed)
        assert why is not None
        assert why.startswith(f"quantization_config.config_groups.group_0.{part} is ")
    assert config_rules.differences(plain, scheme(**{part: None}), parsed=parsed) is None
    assert config_rules.differences(dynamic, {"vocab_size": 8}, parsed=parsed) is None
