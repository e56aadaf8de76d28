"""A user's pod template laid over ours."""

import copy
from typing import Any

import pytest

from rlfleet_operator.core.manifests.owned_objects import UnusableTemplateError
from rlfleet_operator.core.manifests.template_merge import allowed, merged

ENGINE = {"name": "engine", "image": "a", "env": [{"name": "HOME", "value": "/tmp"}]}  # noqa: S108


@pytest.mark.parametrize(
    ("base", "override", "expected"),
    [
        ({"a": 1}, {}, {"a": 1}),
        ({"a": 1}, {"a": 2, "b": 3}, {"a": 2, "b": 3}),
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        ({}, {"a": None}, {}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}}, {"a": {"b": 1, "c": 3}}),
        ({"a": ["x", "y"]}, {"a": ["z"]}, {"a": ["z"]}),
        ({"a": {"b": 1}}, {"a": "text"}, {"a": "text"}),
        ({"a": [ENGINE]}, {"a": []}, {"a": [ENGINE]}),
        ({"a": []}, {"a": [ENGINE]}, {"a": [ENGINE]}),
        (
            {"a": [ENGINE, {"name": "other"}]},
            {"a": [{"name": "engine", "image": "b"}, {"name": "mine"}]},
            {"a": [ENGINE | {"image": "b"}, {"name": "other"}, {"name": "mine"}]},
        ),
        (
            {"a": [ENGINE]},
            {"a": [{"name": "engine", "env": [{"name": "LANG", "value": "C"}]}]},
            {"a": [ENGINE | {"env": [*ENGINE["env"], {"name": "LANG", "value": "C"}]}]},
        ),
        ({"a": [ENGINE]}, {"a": [{"name": []}]}, {"a": [{"name": []}]}),
    ],
    ids=[
        "nothing",
        "scalars",
        "null removes",
        "null adds nothing",
        "maps merge",
        "plain lists are replaced",
        "another kind replaces",
        "an empty list removes nothing",
        "all are new",
        "named things merge by name, new ones come last",
        "inside of named things too",
        "a name that is none is not merged by",
    ],
)
def test_an_override_is_laid_over(base: Any, override: Any, expected: Any) -> None:
    before = copy.deepcopy((base, override))

    assert merged(base, override) == expected
    assert (base, override) == before


@pytest.mark.parametrize(
    ("template", "field"),
    [
        ({"sepc": {"nodeSelector": {}}}, "spec.template.sepc"),
        ({"metadata": {"anotations": {"a": "b"}}}, "spec.template.metadata.anotations"),
        ({"labels": {"a": "b"}, "spec": {}}, "spec.template.labels"),
    ],
)
def test_a_misspelled_part_of_a_template_is_refused_by_name(
    template: dict[str, Any], field: str
) -> None:
    with pytest.raises(UnusableTemplateError, match=rf"{field}: unknown field; correct its name"):
        allowed(template)


def test_what_tools_write_into_every_template_is_no_error() -> None:
    metadata = {"creationTimestamp": None, "name": "any", "labels": {"a": "b"}}

    found = allowed({"metadata": metadata, "spec": None, "sepc": None})

    assert found == {"metadata": {"labels": {"a": "b"}, "annotations": {}}, "spec": {}}
