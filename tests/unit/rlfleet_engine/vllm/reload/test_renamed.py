"""A model's rename rules are reported only if they equal the mapper."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from rlfleet_contract.engine.tensor_names import Renames
from rlfleet_engine.vllm.reload.renamed import renames_of

READ = ("model.layers.0.q.weight", "lm_head.weight")
PREFIX = {"lm_head.": "language_model.lm_head.", "model.": "language_model.model."}


@dataclass
class Mapper:
    """As much of vLLM's WeightsMapper as is asked."""

    names: Mapping[str, str | None]
    """What it makes of names."""
    orig_to_new_prefix: Mapping[str, str] = field(default_factory=lambda: PREFIX)
    orig_to_new_regex: Mapping[re.Pattern[str], str] = field(default_factory=dict)
    orig_to_new_substr: Mapping[str, str] = field(default_factory=dict)
    orig_to_new_suffix: Mapping[str, str] = field(default_factory=dict)
    orig_to_new_renaming: tuple[object, ...] = ()

    def apply_list(self, names: list[str]) -> list[str]:
        return [new for name in names if (new := self.names[name]) is not None]

    def get_rename_mapper(self) -> "Mapper":
        return self


@dataclass
class WeightRenaming:
    """As much of transformers' class as is asked."""

    source_patterns: list[str]
    target_patterns: list[str]
    scope_prefix: str | None = None


class GroupWeightRename(WeightRenaming):
    """Depends on the names that came before."""


def model(mapper: object, *parts: str) -> SimpleNamespace:
    children = [(part, None) for part in parts]
    return SimpleNamespace(hf_to_vllm_mapper=mapper, named_children=lambda: children)


MAPPED = {
    READ[0]: "language_model.model.layers.0.q.weight",
    READ[1]: "language_model.lm_head.weight",
}


def test_rules_that_equal_the_mapper_are_reported() -> None:
    found = renames_of(model(Mapper(MAPPED), "language_model", "visual"), READ)

    assert found == Renames(prefix=tuple(PREFIX.items()))


def test_a_compiled_pattern_is_reported_as_text() -> None:
    pattern = re.compile(r"^model\.layers")
    mapper = Mapper(
        {READ[0]: "layers.0.q.weight"},
        orig_to_new_prefix={},
        orig_to_new_regex={pattern: "layers"},
    )

    assert renames_of(model(mapper, "layers"), READ[:1]) == Renames(
        regex=((r"^model\.layers", "layers"),)
    )


def test_plain_renamings_of_transformers_come_first() -> None:
    renamings = (
        WeightRenaming(["^model", "^vit"], ["language_model"]),
        WeightRenaming([r"(layers)\.0"], [r"\1.first"]),
    )
    mapper = Mapper(
        {READ[0]: "language_model.layers.first.weight"},
        orig_to_new_prefix={},
        orig_to_new_regex={re.compile(r"\.q\."): "."},
        orig_to_new_renaming=renamings,
    )

    found = renames_of(model(mapper, "language_model"), READ[:1])

    assert found is not None
    assert found.regex == (
        ("(?:^model)|(?:^vit)", "language_model"),
        (r"(?:(layers)\.0)", r"\1.first"),
        (r"\.q\.", "."),
    )
    assert found.of("language_model.layers.1.q.weight") == "language_model.layers.1.weight"


@pytest.mark.parametrize(
    "renaming",
    [
        GroupWeightRename(["^model"], ["language_model.model"]),
        WeightRenaming(["^model"], ["language_model.model"], scope_prefix="text"),
        WeightRenaming(["^model"], ["language_model.model", "other"]),
        WeightRenaming(["^model"], [r"language_model\.model"]),
        WeightRenaming(["^(model)", "^(vit)"], [r"language_model.\1"]),
    ],
    ids=["depends on others", "in a scope", "two targets", "escapes", "groups of several"],
)
def test_other_renamings_of_transformers_are_not_reported(renaming: object) -> None:
    mapper = Mapper(MAPPED, orig_to_new_prefix={}, orig_to_new_renaming=(renaming,))

    assert renames_of(model(mapper, "language_model"), READ[:1]) is None


@pytest.mark.parametrize(
    "unlike",
    [
        model(None, "language_model"),
        model(Mapper(MAPPED | {READ[0]: "something.else"}), "language_model"),
        model(Mapper(MAPPED), "transformer"),
        model(Mapper(MAPPED, orig_to_new_renaming=(object(),)), "language_model"),
    ],
    ids=["no mapper", "another result", "no part of the model", "rules that are code"],
)
def test_other_rules_are_not_reported(unlike: object) -> None:
    assert renames_of(unlike, READ) is None
