"""docs/reference/fleet.md, made from the same models as the CustomResourceDefinition.

Pure: text in, text out. A field's meaning is its description there; a field without a
description is an error.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from dev.docs import crd

Schema = dict[str, Any]

_HEAD = """\
# RLInferenceFleet

<!-- Generated from the models in operator/rlfleet_operator/crd; do not edit. -->

`rlfleet.dev/v1alpha1`, namespaced, short name `rlf`, category `rl`.
It has the subresources `status` and `scale`.
Only users write `spec`, and only the operator writes `status`.
`kubectl explain rlf.spec` shows the same from the cluster.
"""


class Field(NamedTuple):
    """One row."""

    path: str
    schema: Schema
    is_required: bool


def page() -> str:
    """Return the whole page."""
    schema = _schema()
    parts = [_HEAD, "## Columns of kubectl get\n", _columns()]
    for name, title in (("spec", "Desired state"), ("status", "Observed state")):
        fields = list(_fields(name, schema["properties"][name]))
        parts += [f"## {name}: {title.lower()}\n", _table(fields, has_defaults=name == "spec")]
    parts += ["## What the API server rejects\n", _rules("", schema)]
    return "\n".join(parts)


def _version() -> Schema:
    found: Schema = crd.definition()["spec"]["versions"][0]
    return found


def _schema() -> Schema:
    found: Schema = _version()["schema"]["openAPIV3Schema"]
    return found


def _columns() -> str:
    rows = [
        f"| {column['name']} | `{column['jsonPath']}` | {'yes' if column.get('priority') else ''} |"
        for column in _version()["additionalPrinterColumns"]
    ]
    return "\n".join(["| column | path | only with -o wide |", "|---|---|---|", *rows, ""])


def _fields(path: str, schema: Schema) -> Iterator[Field]:
    """Yield every field beneath, parents before children."""
    required = schema.get("required", ())
    for name, inner in schema.get("properties", {}).items():
        field = f"{path}.{name}"
        yield Field(field, inner, name in required)
        yield from _fields(field, inner)
        if inner.get("type") == "array":
            yield from _fields(f"{field}[]", inner["items"])


def _table(fields: list[Field], *, has_defaults: bool) -> str:
    head = ["field", "type", *(["default"] if has_defaults else []), "meaning"]
    rows = [head, ["---"] * len(head)]
    for field in fields:
        cells = [f"`{field.path}`", _type(field.schema)]
        if has_defaults:
            cells.append(_default(field))
        rows.append([*cells, meaning_of(field)])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows) + "\n"


def meaning_of(field: Field) -> str:
    """Return a field's description; raises KeyError without one."""
    return str(field.schema["description"]).replace("|", "\\|").replace("\n", " ")


def _default(field: Field) -> str:
    if field.is_required:
        return "required"
    if "default" not in field.schema:
        return ""
    value = field.schema["default"]
    if isinstance(value, list):
        return ", ".join(f"`{item}`" for item in value)
    return f"`{value}`" if value not in ("", {}) else "empty"


def _type(schema: Schema) -> str:
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    kind = str(schema.get("type", "any"))
    if kind == "array":
        return f"list of {_type(schema['items'])}"
    if kind == "object" and "additionalProperties" in schema:
        return f"map of {_type(schema['additionalProperties'])}"
    return kind + _bounds(schema)


def _bounds(schema: Schema) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and most is not None:
        return f", {least} to {most}"
    longest = schema.get("maxLength")
    return f", at most {longest} characters" if longest else ""


def _rules(path: str, schema: Schema) -> str:
    return "".join(f"- `{where}`: {told}.\n" for where, told in _validations(path, schema))


def _validations(path: str, schema: Schema) -> Iterator[tuple[str, str]]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield path or "metadata", rule["message"]
    for name, inner in schema.get("properties", {}).items():
        yield from _validations(f"{path}.{name}".strip("."), inner)
    if isinstance(schema.get("items"), dict):
        yield from _validations(f"{path}[]", schema["items"])
