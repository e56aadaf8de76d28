"""The chart's README and schema, from the comments in its values."""

import json

import pytest
import yaml

from dev.docs import chart

VALUES = """\
# How many there are,
# one or more.
replicas: 2

# A comment of the file.

image:
  # Where it comes from.
  repository: ""
  tag: ""
# Of pods.
labels:
  # Of nothing.
  - key: a
"""


def test_a_comment_describes_the_key_below_it() -> None:
    assert chart.comments(VALUES) == {
        "replicas": "How many there are, one or more.",
        "image.repository": "Where it comes from.",
        "labels": "Of pods.",
    }


def test_a_value_without_a_comment_is_an_error() -> None:
    with pytest.raises(KeyError, match=r"image\.tag"):
        chart.described(
            {"properties": {"image": {"properties": {"tag": {}}}}}, {"image": "The image."}
        )


def test_a_description_stands_first_and_replaces_an_old_one() -> None:
    old = {"properties": {"replicas": {"type": "integer", "description": "Old."}}}

    made = chart.described(old, {"replicas": "New."})

    assert json.dumps(made["properties"]) == (
        '{"replicas": {"description": "New.", "type": "integer"}}'
    )


def test_every_value_is_in_values_yaml_and_in_the_schema() -> None:
    defaults = yaml.safe_load((chart.CHART / "values.yaml").read_text())
    schema = json.loads((chart.CHART / "values.schema.json").read_text())

    assert _paths(defaults, schema) == {row.path for row in chart.values()}


def test_the_schema_knows_no_value_but_these() -> None:
    """Only `global` belongs to the charts around this one too."""
    schema = json.loads((chart.CHART / "values.schema.json").read_text())
    maps = {"": schema} | {row.path: row.schema for row in chart.values()}

    open_ones = {
        path
        for path, inner in maps.items()
        if "properties" in inner and inner.get("additionalProperties") is not False
    }
    assert open_ones == {"global"}


def test_annotations_are_what_artifact_hub_reads() -> None:
    about = yaml.safe_load((chart.CHART / "Chart.yaml").read_text())
    parsed = {
        name.removeprefix("artifacthub.io/"): yaml.safe_load(text)
        for name, text in about["annotations"].items()
    }
    kinds = {"added", "changed", "deprecated", "removed", "fixed", "security"}
    (crd,) = parsed["crds"]

    assert crd.keys() == {"kind", "version", "name", "displayName", "description"}
    assert parsed["operatorCapabilities"] == "Deep Insights"
    assert {change["kind"] for change in parsed["changes"]} <= kinds
    assert all(link["url"].startswith("https://") for link in parsed["links"])


def _paths(values: chart.Schema, schema: chart.Schema, path: str = "") -> set[str]:
    """Return the paths of the keys of values, as deep as the schema names keys."""
    found = set()
    for name, value in values.items():
        where = f"{path}.{name}".strip(".")
        found.add(where)
        inner = schema.get("properties", {}).get(name, {})
        if "properties" in inner:
            found |= _paths(value, inner, where)
    return found
