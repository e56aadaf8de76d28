"""A version for a quantised base model, as tools and trainers name their tensors."""

import pytest

from rlfleet_contract.engine.safetensors import Tensor
from rlfleet_sidecar.checkpoints.compatibility import differences
from rlfleet_sidecar.state.required_tensors import RequiredTensors

NEEDS = RequiredTensors("boot", (), tied=False)
Q = "model.layers.0.self_attn.q_proj"
NORM = ("model.norm.weight", "BF16", (256,))


def tensors(*listed: tuple[str, str, tuple[int, ...]]) -> dict[str, Tensor]:
    return {name: Tensor(name, dtype, shape, 0, 0) for name, dtype, shape in (*listed, NORM)}


BFLOAT16 = tensors((f"{Q}.weight", "BF16", (256, 256)))
FP8 = tensors(
    (f"{Q}.weight", "F8_E4M3", (256, 256)), (f"{Q}.weight_scale", "BF16", (256, 1))
)  # fmt: skip
FP8_BLOCKS = tensors(
    (f"{Q}.weight", "F8_E4M3", (256, 256)), (f"{Q}.weight_scale_inv", "F32", (2, 2))
)
PACKED = tensors(
    (f"{Q}.weight_packed", "I32", (256, 32)),
    (f"{Q}.weight_scale", "BF16", (256, 2)),
    (f"{Q}.weight_shape", "I64", (2,)),
)


@pytest.mark.parametrize("model", [FP8, FP8_BLOCKS, PACKED], ids=["fp8", "blocks", "packed"])
def test_a_version_that_is_not_quantised_names_quantisation_as_the_way_out(
    model: dict[str, Tensor],
) -> None:
    why = differences(model, BFLOAT16, NEEDS) or ""

    assert why.startswith("the base model is quantised and the version is not: quantise it with")
    assert "save_pretrained" not in why


def test_a_version_of_another_scheme_is_rejected_by_names_and_dtypes() -> None:
    assert "_scale_inv" in (differences(FP8, FP8_BLOCKS, NEEDS) or "")
    assert "is quantised" not in (differences(FP8, FP8_BLOCKS, NEEDS) or "")
    assert "expected BF16" in (differences(BFLOAT16, FP8, NEEDS) or "")


# As bitsandbytes, MLX, torchao and Quanto name them.
BITS_AND_BYTES = tensors(
    (f"{Q}.weight", "U8", (32768, 1)),
    (f"{Q}.weight.absmax", "F32", (1024,)),
    (f"{Q}.weight.quant_map", "F32", (16,)),
)
MLX = tensors(
    (f"{Q}.weight", "U32", (256, 32)),
    (f"{Q}.scales", "BF16", (256, 4)),
    (f"{Q}.biases", "BF16", (256, 4)),
)
TORCHAO = tensors(
    (f"{Q}._weight_qdata", "I8", (256, 256)), (f"{Q}._weight_scale", "BF16", (256, 1))
)
QUANTO = tensors((f"{Q}.weight._data", "I8", (256, 256)), (f"{Q}.weight._scale", "BF16", (256, 1)))


@pytest.mark.parametrize("found", [BITS_AND_BYTES, MLX, TORCHAO, QUANTO, FP8, PACKED])
def test_a_quantised_version_of_a_plain_base_model_is_rejected_with_the_way_out(
    found: dict[str, Tensor],
) -> None:
    why = differences(BFLOAT16, found, NEEDS) or ""

    assert why.startswith("the version is quantised and the base model is not: save its weights")
    assert "save_pretrained" not in why


# As LLM Compressor writes FP8_BLOCK, W8A8 and static FP8, AutoRound GPTQ and AWQ.
FP8_BLOCK = FP8 | tensors((f"{Q}.weight_scale", "BF16", (2, 2)))
INT8 = FP8 | tensors((f"{Q}.weight", "I8", (256, 256)))
FP8_STATIC = FP8 | tensors((f"{Q}.weight_scale", "BF16", (1,)), (f"{Q}.input_scale", "BF16", (1,)))
AWQ = tensors(
    (f"{Q}.qweight", "I32", (256, 32)),
    (f"{Q}.qzeros", "I32", (2, 32)),
    (f"{Q}.scales", "F16", (2, 256)),
)
GPTQ = AWQ | tensors((f"{Q}.qweight", "I32", (32, 256)), (f"{Q}.g_idx", "I32", (256,)))


@pytest.mark.parametrize(
    ("model", "found"),
    [
        (PACKED, TORCHAO),
        (FP8, FP8_BLOCK),
        (FP8, INT8),
        (FP8, FP8_STATIC),
        (FP8_STATIC, FP8),
        (GPTQ, AWQ),
    ],
    ids=["torchao", "blocks", "int8", "static", "dynamic", "awq"],
)
def test_another_scheme_than_the_base_model_s_names_quantisation_as_the_way_out(
    model: dict[str, Tensor], found: dict[str, Tensor]
) -> None:
    why = differences(model, found, NEEDS) or ""

    assert why.endswith("quantise the version with the tool and the scheme of the base model")


def test_a_part_of_one_rank_for_a_quantised_base_model_is_no_other_scheme() -> None:
    part = tensors(
        (f"{Q}.weight", "F8_E4M3", (128, 256)), (f"{Q}.weight_scale", "BF16", (128, 1))
    ) | {NORM[0]: Tensor(*NORM[:2], (128,), 0, 0)}

    why = differences(FP8, part, NEEDS) or ""

    assert why.endswith(
        "gather the parameters of all ranks before you save them, or serve a base model of this"
        " size"
    )


def test_an_old_mask_is_no_quantisation() -> None:
    masked = tensors(("h.0.attn.bias", "U8", (1, 1, 8, 8)), (f"{Q}.weight", "BF16", (256, 256)))

    assert "quantised" not in (differences(BFLOAT16, masked, NEEDS) or "")


def test_other_dtypes_for_a_plain_base_model_name_those_that_are_taken() -> None:
    doubled = tensors((f"{Q}.weight", "F64", (256, 256)))

    why = differences(BFLOAT16, doubled, NEEDS) or ""

    assert why.endswith("F64, expected BF16; save the version in BF16, F16 or F32")


def test_a_tied_tensor_under_the_name_of_the_head_is_rejected_with_the_way_out() -> None:
    # So do safetensors' save_model and huggingface_hub's save_torch_state_dict: the first by name.
    model = tensors(("model.embed_tokens.weight", "BF16", (100, 16)))
    found = tensors(("lm_head.weight", "BF16", (100, 16)))

    why = differences(model, found, RequiredTensors("boot", (), tied=True)) or ""

    assert why.endswith("save the tied tensor under the name of the embeddings, not of the head")


def test_an_adapter_in_place_of_a_version_is_rejected_with_the_ways_out() -> None:
    adapter = tensors((f"base_model.model.{Q}.lora_A.weight", "BF16", (8, 256)))

    why = differences(BFLOAT16, adapter, NEEDS) or ""

    assert why.endswith("merge the adapter into the base model's weights, or load it as an adapter")


def test_a_value_head_next_to_the_weights_is_rejected_with_the_way_out() -> None:
    # LLaMA-Factory writes it into a file of its own after PPO, without an index.
    found = BFLOAT16 | tensors(("v_head.summary.weight", "F32", (1, 256)))

    why = differences(BFLOAT16, found, NEEDS) or ""

    assert why.endswith(
        "; remove the value head (value_head.safetensors), which no engine computes with"
    )
