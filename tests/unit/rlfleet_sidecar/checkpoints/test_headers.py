"""Which files of a directory are its checkpoint."""

import json
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from rlfleet_sidecar.checkpoints.headers import Headers, content_of, refuse_code
from rlfleet_sidecar.checkpoints.safe_paths import open_copy, open_model
from rlfleet_sidecar.errors import SidecarError
from tests.fakes.checkpoints import CONFIG, SHAPES, header_of, write_file, write_shards

MISTRAL = {f"mistral.{name}": shape for name, shape in SHAPES.items()}


def base_of(directory: Path) -> Headers:
    with open_model(directory) as folder:
        return content_of(folder, time.monotonic() + 30)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A base model in Mistral's own form, with an index."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    write_file(tmp_path / "consolidated.safetensors", MISTRAL, 0)
    index = {"weight_map": dict.fromkeys(MISTRAL, "consolidated.safetensors")}
    (tmp_path / "consolidated.safetensors.index.json").write_text(json.dumps(index))
    return tmp_path


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("has_index", [True, False])
def test_mistral_s_second_copy_of_a_base_model_does_not_count(
    model: Path, shards: int, *, has_index: bool
) -> None:
    if not has_index:
        (model / "consolidated.safetensors.index.json").unlink()
    if shards == 1:
        write_file(model / "model.safetensors", SHAPES, 0)
    else:
        write_shards(model, 0, shards)

    found = base_of(model)

    assert found.tensors.keys() == SHAPES.keys()
    assert len(found.files) == shards


def test_mistral_s_only_copy_of_a_base_model_counts(model: Path) -> None:
    assert base_of(model).tensors.keys() == MISTRAL.keys()


def test_a_version_holds_one_copy(model: Path) -> None:
    write_file(model / "model.safetensors", SHAPES, 0)

    with (
        open_copy(model) as folder,
        pytest.raises(SidecarError, match="is not listed in the index"),
    ):
        content_of(folder, time.monotonic() + 30)


def test_an_adapter_next_to_a_version_s_shards_may_be_missing_in_them(tmp_path: Path) -> None:
    """As torchtune's LoRA recipes leave it; theirs hold it."""
    write_shards(tmp_path, 0, 2)
    write_file(tmp_path / "adapter_model.safetensors", SHAPES, 0)

    with open_copy(tmp_path) as folder, pytest.raises(SidecarError) as caught:
        content_of(folder, time.monotonic() + 30)

    assert caught.value.message.endswith(
        "adapter_model.safetensors is not listed in the index; remove it if the weights hold this"
        " adapter, else merge it first"
    )


@pytest.mark.parametrize(
    ("name", "may_be_absent"),
    [
        ("model.layers.0.self_attn.rotary_emb.inv_freq", True),
        ("lm_head.weight", True),
        ("model.norm.weight", False),
        ("model.layers.0.mlp.down_proj.weight", False),
    ],
)
def test_an_index_may_list_what_torchtune_leaves_out(
    tmp_path: Path, name: str, *, may_be_absent: bool
) -> None:
    """It writes the base model's index again, without tables of rotations and a tied head."""
    shapes = {one: shape for one, shape in SHAPES.items() if one != name}
    write_file(tmp_path / "model.safetensors", shapes, 0)
    index = {"weight_map": dict.fromkeys((*shapes, name), "model.safetensors")}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    refused = pytest.raises(SidecarError, match=f"lacks tensor {name} of its index")

    with open_copy(tmp_path) as folder, nullcontext() if may_be_absent else refused:
        assert content_of(folder, time.monotonic() + 30).tensors.keys() == shapes.keys()


@pytest.mark.parametrize("dtype", ["F4", "F6_E2M3", "C64", "F8_E5M2FNUZ"])
def test_a_dtype_that_is_not_loaded_is_no_damage(tmp_path: Path, dtype: str) -> None:
    # safetensors writes them.
    write_file(tmp_path / "model.safetensors", SHAPES, 0, header_of(SHAPES, dtype))

    with open_copy(tmp_path) as folder, pytest.raises(SidecarError) as caught:
        content_of(folder, time.monotonic() + 30)

    assert caught.value.message.endswith(
        f"has unsupported dtype {dtype}; save it in BF16, F16 or F32"
    )
    assert "damaged" not in caught.value.message


@pytest.mark.parametrize(
    ("names", "way_out"),
    [
        ((".metadata", "__0_0.distcp"), "accelerate merge-weights, or torchtitan's convert_to_hf"),
        (("config.json", "optimizer_0", "pytorch_model_fsdp_0"), "accelerate merge-weights"),
        (("global_step5", "latest"), "zero_to_fp32.py --safe_serialization"),
        (("latest", "zero_to_fp32.py"), "zero_to_fp32.py --safe_serialization"),
        (("hf_model", "train.log"), "name the directory that has them in spec.weights.path"),
        (("model-Q4.gguf",), "write its weights as .safetensors files"),
    ],
)
def test_a_directory_without_weights_is_rejected_by_what_is_there(
    tmp_path: Path, names: tuple[str, ...], way_out: str
) -> None:
    for name in names:
        (tmp_path / name).touch()

    with open_copy(tmp_path) as folder, pytest.raises(SidecarError) as caught:
        content_of(folder, time.monotonic() + 30)

    assert f"contains no .safetensors file, but {', '.join(names)}; " in caught.value.message
    assert way_out in caught.value.message


@pytest.mark.parametrize(
    ("names", "way_out"),
    [
        (
            ("extra_state_world_size_2_rank_0.pt", "model_world_size_2_rank_0.pt", "huggingface"),
            "gather the ranks' parts with python -m verl.model_merger merge, and publish",
        ),
        (
            (".metadata", "__0_0.distcp", "common.pt", "metadata.json", "run_config.yaml"),
            "gather the ranks' parts with Megatron-Bridge's export_ckpt, or verl.model_merger",
        ),
        (("model_world_size_2_rank_0.pt", "model.safetensors"), "remove it, and write safetensors"),
        (("lit_model.pth",), "remove it, and write safetensors"),
    ],
)
def test_ranks_parts_that_can_hold_code_are_rejected_with_what_gathers_them(
    tmp_path: Path, names: tuple[str, ...], way_out: str
) -> None:
    """As verl and Megatron leave them."""
    for name in names:
        (tmp_path / name).touch()

    with open_copy(tmp_path) as folder, pytest.raises(SidecarError) as caught:
        refuse_code(folder)

    assert f"can contain code; {way_out}" in caught.value.message


def test_a_pointer_of_git_lfs_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 607360\n"
    )

    with open_copy(tmp_path) as folder, pytest.raises(SidecarError, match="git lfs pull"):
        content_of(folder, time.monotonic() + 30)
