"""Which tensors a directory holds for a trainer that publishes it."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from rlfleet.publish.errors import PublishError
from rlfleet.publish.tensors import items
from tests.fakes.checkpoints import SHAPES, write_file, write_shards

MISTRAL = {f"mistral.{name}": shape for name, shape in SHAPES.items()}


@pytest.mark.parametrize("shards", [1, 2])
def test_mistral_s_second_copy_of_a_model_is_no_part_of_it(tmp_path: Path, shards: int) -> None:
    write_file(tmp_path / "consolidated.safetensors", MISTRAL, 0)
    if shards == 1:
        write_file(tmp_path / "model.safetensors", SHAPES, 0)
    else:
        write_shards(tmp_path, 0, shards)

    assert {item.name for item in items(tmp_path)} == SHAPES.keys()


def test_mistral_s_only_copy_of_a_model_is_the_model(tmp_path: Path) -> None:
    write_file(tmp_path / "consolidated.safetensors", MISTRAL, 0)

    assert {item.name for item in items(tmp_path)} == MISTRAL.keys()


class MetaTensor:
    """As torch's on the meta device: torch is not installed for these tests."""

    dtype, device, shape = "torch.bfloat16", "meta", (2, 3)

    def detach(self) -> "MetaTensor":
        return self

    def cpu(self) -> NoReturn:
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")


def test_a_tensor_without_plain_bytes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=MetaTensor))

    with pytest.raises(PublishError, match=r"tensor w \(MetaTensor on meta\) has no plain bytes"):
        next(items({"w": MetaTensor()}))
