"""Which tensors of a model are read; the zoo reads those of vLLM's own models."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.unit.rlfleet_engine.torchless import imported

IN_MEMORY, LEFT_OUT = SimpleNamespace(is_meta=False), SimpleNamespace(is_meta=True)


class Model:
    """A model whose tower was left out, and with it a parameter of its own."""

    _non_persistent_buffers_set = frozenset({"passing"})

    def named_modules(self) -> Iterator[tuple[str, "Model"]]:
        yield "", self

    def named_parameters(self) -> Iterator[tuple[str, SimpleNamespace]]:
        yield from (("weight", IN_MEMORY), ("image_newline", LEFT_OUT))

    def named_buffers(self) -> Iterator[tuple[str, SimpleNamespace]]:
        yield from (("scale", IN_MEMORY), ("passing", IN_MEMORY))


@pytest.fixture
def model_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    with imported("rlfleet_engine.reload.model_memory", tmp_path, monkeypatch) as module:
        yield module


def test_the_parts_that_an_engine_leaves_out_are_not_read(model_memory: ModuleType) -> None:
    assert model_memory.named(Model()) == {"weight": IN_MEMORY, "scale": IN_MEMORY}
