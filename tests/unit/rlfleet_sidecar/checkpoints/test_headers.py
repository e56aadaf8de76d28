"""Which files of a directory are its checkpoint."""

import json
import time
from pathlib import Path

import pytest

from rlfleet_sidecar.checkpoints.headers import Headers, content_of
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
