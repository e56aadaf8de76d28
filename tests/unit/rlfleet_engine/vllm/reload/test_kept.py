"""How much of a model is readable."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.unit.rlfleet_engine.torchless import imported


class Tensor:
    """A tensor of two-byte elements."""

    def __init__(self, numel: int, *, is_meta: bool = False) -> None:
        self._numel = numel
        self.is_meta = is_meta

    def numel(self) -> int:
        return self._numel

    def element_size(self) -> int:
        return 2


class Layer:
    """A layer whose tower was left out, and with it a parameter of its own."""

    _non_persistent_buffers_set = frozenset({"passing"})

    def __init__(self) -> None:
        self._parameters = {"weight": Tensor(8), "none": None, "newline": Tensor(4, is_meta=True)}
        self._buffers = {"scale": Tensor(1), "passing": Tensor(2)}

    def modules(self) -> Iterator["Layer"]:
        yield self


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    with imported("rlfleet_engine.vllm.reload.kept", tmp_path, monkeypatch) as module:
        yield module


def test_a_part_that_an_engine_leaves_out_does_not_count(kept: ModuleType) -> None:
    assert kept.sizes(Layer()) == ((8 + 1) * 2, 0)
