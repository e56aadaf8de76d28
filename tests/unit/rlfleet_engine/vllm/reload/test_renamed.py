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
