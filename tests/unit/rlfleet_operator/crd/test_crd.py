"""The resource's definition: what an API server accepts, and what a person reads.

tests/integration/test_resource.py asks a real API server the same questions.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from dev import generated
from dev.docs import crd, reference
from rlfleet_operator.crd.field_types import Model
from rlfleet_operator.crd.fleet_spec import FleetSpec
from rlfleet_operator.crd.fleet_status import FleetStatus

Schema = dict[str, Any]
DEFINITION = crd.definition()
(VERSION,) = DEFINITION["spec"]["versions"]
SCHEMA: Schema = VERSION["schema"]["openAPIV3Schema"]


def parts(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield a schema and all beneath it."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from parts(inner, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield from parts(schema[word], f"{path}[]")


PARTS = dict(parts(SCHEMA))


@pytest.mark.parametrize(("path", "schema"), PARTS.items(), ids=PARTS)
def test_the_schema_is_structural(path: str, schema: Schema) -> None:
    refused = {"$ref", "$defs", "anyOf", "oneOf", "allOf", "const", "title", "exclusiveMinimum"}

    assert refused.isdisjoint(schema), path
    assert "type" in schema or schema.get("x-kubernetes-int-or-string"), path
    assert schema.get("additionalProperties", {}) not in (True, False), path


@pytest.mark.parametrize(("path", "schema"), PARTS.items(), ids=PARTS)
def test_what_a_rule_reads_has_an_end(path: str, schema: Schema) -> None:
    """An API server refuses rules that could cost too much."""
    if "x-kubernetes-validations" in schema and schema.get("type") == "string":
        assert "maxLength" in schema, path
    if "x-kubernetes-validations" in schema and schema.get("type") == "array":
        assert "maxItems" in schema, path
        items = schema["items"]
        read = items.get("properties", {"": items}).values()
        assert all("maxLength" in one for one in read if one["type"] == "string"), path


@pytest.mark.parametrize(("path", "schema"), PARTS.items(), ids=PARTS)
def test_no_default_is_null(path: str, schema: Schema) -> None:
    assert schema.get("default", "") is not None, path


def test_a_version_of_the_weights_has_no_default() -> None:
    """A default would be a third owner next to the trainer and the GitOps tool."""
    assert "default" not in SCHEMA["properties"]["spec"]["properties"]["weightVersion"]


def test_nothing_looks_current_before_it_was_seen() -> None:
    status = SCHEMA["properties"]["status"]

    assert status["default"] == {"observedGeneration": -1}
    assert status["properties"]["observedGeneration"]["default"] == -1


def test_lists_that_are_written_whole_are_atomic_and_conditions_are_not() -> None:
    fields = SCHEMA["properties"]["status"]["properties"]

    assert fields["workers"]["x-kubernetes-list-type"] == "atomic"
    assert fields["conditions"]["x-kubernetes-list-map-keys"] == ["type"]


@pytest.mark.parametrize("column", VERSION["additionalPrinterColumns"], ids=lambda c: c["name"])
def test_a_column_shows_a_field_that_there_is(column: dict[str, Any]) -> None:
    fields, words = SCHEMA["properties"], column["jsonPath"].split("[")[0].strip(".").split(".")
    if words[0] == "metadata":
        return
    for word in words:
        assert word in fields
        fields = fields[word].get("properties", {})


def test_scaling_reads_fields_that_there_are() -> None:
    scale = VERSION["subresources"]["scale"]

    assert scale["labelSelectorPath"] == ".status.selector"
    assert {"replicas", "selector"} <= SCHEMA["properties"]["status"]["properties"].keys()
    assert scale["specReplicasPath"] == ".spec.replicas"


@pytest.mark.parametrize(("part", "model"), [("spec", FleetSpec), ("status", FleetStatus)])
def test_every_field_of_the_models_is_in_the_definition(part: str, model: type[Model]) -> None:
    names = {field.alias for field in model.model_fields.values()}

    assert names == set(SCHEMA["properties"][part]["properties"])


def test_every_field_has_a_meaning() -> None:
    rows = [line for line in reference.page().splitlines() if line.startswith("| `s")]

    assert len(rows) > len(FleetSpec.model_fields) + len(FleetStatus.model_fields)
    assert [row for row in rows if row.split(" | ")[-1] in {"|", " |", ""}] == []


def test_the_chart_s_definition_is_the_same_and_is_kept() -> None:
    (template,) = [text for path, text in generated.files().items() if path.name == "crd.yaml"]
    inner = template.removeprefix("{{- if .Values.crds.enabled }}\n").removesuffix("{{- end }}\n")
    made = yaml.safe_load(inner)

    assert made["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert made == DEFINITION
    assert "{{" not in inner
