"""Which tensors no answer to a text prompt depends on, by the modules of a multimodal model.

The layers here have only what the rules look at; the zoo asks vLLM's own models.
"""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

TABLE = "model_executor/layers/vocab_parallel_embedding.py"


@pytest.fixture
def describe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Import the module with a package of vLLM's name, which this environment lacks."""
    package = tmp_path / "vllm"
    (package / TABLE).parent.mkdir(parents=True)
    for folder in (package, package / "model_executor", (package / TABLE).parent):
        (folder / "__init__.py").write_text("__version__ = '0.32.0'\n")
    (package / TABLE).write_text("class VocabParallelEmbedding:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("rlfleet_engine.vllm.describe")
    yield module
    for name in [*sys.modules]:
        if name == module.__name__ or name.partition(".")[0] == "vllm":
            del sys.modules[name]


class Layer:
    """A module with its children, and the weights of its own."""

    def __init__(self, *own: str, **children: Any) -> None:
        self.own = own
        self.children = children
        self.__dict__.update(children)

    def named_children(self) -> Iterator[tuple[str, Any]]:
        yield from self.children.items()

    def named_parameters(self, *, recurse: bool) -> Iterator[tuple[str, None]]:
        assert not recurse
        yield from ((name, None) for name in self.own)

    def modules(self) -> Iterator[Any]:
        yield self
        for child in self.children.values():
            yield from child.modules() if isinstance(child, Layer) else (child,)

    def get_submodule(self, path: str) -> Any:
        found: Any = self
        for name in filter(None, path.split(".")):
            found = found.children[name]
        return found


class Text(Layer):
    """A language model."""

    def embed_input_ids(self) -> None:
        """Mark it as one, as vLLM does."""


def kinds(describe: ModuleType, model: Layer, *named: str) -> list[str]:
    found: list[str] = describe.unreached(model, named)
    return found


TENSORS = ("tower.w", "projector.w", "lm_head.weight", "language_model.layers.N.w")


def test_what_lies_next_to_the_language_model_is_unreached_but_for_its_tables(
    describe: ModuleType,
) -> None:
    table = describe.VocabParallelEmbedding()
    model = Layer(
        tower=Layer(),
        projector=Layer(),
        lm_head=Layer(table=table),
        language_model=Text(layers=Layer()),
    )
    model.__dict__["_language_model_names"] = ["language_model"]

    assert kinds(describe, model, *TENSORS) == ["tower.w", "projector.w"]


def test_a_language_model_of_which_only_pieces_are_marked_leaves_nothing_next_to_it(
    describe: ModuleType,
) -> None:
    model = Layer(table=Layer(), text=Layer(layers=Layer(), norm=Layer()))
    model.__dict__["_language_model_names"] = ["text.layers", "text.norm"]

    assert kinds(describe, model, "table.w", "text.layers.N.w", "text.norm.w") == []


def test_a_language_model_further_down_is_followed(describe: ModuleType) -> None:
    inner = Layer(vision=Layer(), text=Text(layers=Layer()))
    model = Layer(model=inner, extra=Layer())
    model.__dict__["_language_model_names"] = ["model.text"]

    found = kinds(describe, model, "model.vision.w", "model.text.layers.N.w", "extra.w")

    assert found == ["model.vision.w", "extra.w"]


def test_a_table_of_tokens_that_is_marked_as_a_tower_is_reached(describe: ModuleType) -> None:
    model = Text("newline", vision=Layer(), embed=describe.VocabParallelEmbedding())
    model.__dict__["_tower_model_names"] = ["vision", "embed"]

    assert kinds(describe, model, "vision.w", "embed.weight", "newline", "layers.N.w") == [
        "vision.w",
        "newline",
    ]


def test_the_shape_of_a_packed_weight_is_unreached(describe: ModuleType) -> None:
    packed = ("l.q.weight_packed", "l.q.weight_shape", "l.k.weight_shape")

    assert kinds(describe, Text(), *packed) == ["l.q.weight_shape"]


def test_what_only_the_tokens_of_pictures_use_in_a_language_model_is_unreached(
    describe: ModuleType,
) -> None:
    """Ernie 4.5 VL's second router, and Molmo's rows for such tokens."""
    ernie = ("model.layers.N.mlp.gate.weight", "model.layers.N.mlp.gate.weight_1")
    molmo = ("model.transformer.wte.embedding", "model.transformer.wte.new_embedding")

    assert kinds(describe, Text(), *ernie, *molmo) == [ernie[1], molmo[1]]


@pytest.mark.parametrize(
    "indexer",
    [
        "model.layers.N.self_attn.indexer.wq_b.weight",
        "layers.N.attn.indexer.compressor.wkv.weight",
        "language_model.model.layers.N.self_attn.index_q_proj.weight",
        "language_model.model.layers.N.self_attn.index_k_norm.weight",
    ],
)
def test_what_chooses_among_more_tokens_than_a_probe_has_is_unreached(
    describe: ModuleType, indexer: str
) -> None:
    """Else no engine of DeepSeek V3.2 or GLM-5 would pass its self-test."""
    others = ("model.layers.N.self_attn.q_b_proj.weight", "layers.N.attn.compressor.wkv.weight")

    assert kinds(describe, Text(), indexer, *others) == [indexer]


@pytest.mark.parametrize(
    ("scheme", "is_reloadable"),
    [
        (None, True),
        (SimpleNamespace(is_checkpoint_torchao_serialized=False), True),
        (SimpleNamespace(is_checkpoint_torchao_serialized=True), False),
        (SimpleNamespace(), True),
    ],
)
def test_only_what_torchao_serialised_is_not_reloaded(
    describe: ModuleType, scheme: Any, *, is_reloadable: bool
) -> None:
    """Online torchao quantises bfloat16 versions in each load."""
    assert (describe._of_torchao(scheme) is None) == is_reloadable  # noqa: SLF001 - its rule
