"""docs/reference/fleet.md, made from the same models as the CustomResourceDefinition.

Pure: text in, text out. A field's meaning is its description there; the few
that have none there are told here, and a field that is told nowhere is an error.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from dev import crd

Schema = dict[str, Any]

_MEANINGS = {
    "spec.engine.imagePullPolicy": "When the kubelet pulls the worker's images.",
    "spec.engine.tensorParallelSize": "vLLM's `--tensor-parallel-size`.",
    "spec.engine.extraEnv": "More environment variables of the engine's container.",
    "spec.engine.extraEnv[].name": "The variable's name.",
    "spec.engine.extraEnv[].value": "Its value.",
    "requests": "What the scheduler sets aside, by resource name.",
    "limits": "What the container may use at most, by resource name.",
    "prepareSeconds": "Finding and checking the version; the engine serves meanwhile.",
    "pauseSeconds": "Closing the gate and pausing the engine; in mode Wait also the requests"
    " in flight.",
    "flushSeconds": "Emptying the KV and prefix cache.",
    "reloadSeconds": "Installing the weights in place.",
    "verifySeconds": "The probe behind the closed gate.",
    "resumeSeconds": "Opening the gate.",
    "status.observedGeneration": "The `metadata.generation` that this status is about; -1 before"
    " the operator has seen the fleet.",
    "status.quarantinedReplicas": "Workers whose engine is in doubt: out of service until a good"
    " version is loaded and proved, or the pod is replaced.",
    "status.rollout.from": "The version that was served when it began; empty if none was.",
    "status.rollout.to": "The version that it leads to.",
    "status.rollout.message": "The first refusal or failure of `to`, in the worker's words.",
    "status.rollout.startedAt": "When it was recorded.",
    "status.rollout.finishedAt": "When it became Completed or Failed.",
    "minMs": "Of the quickest worker.",
    "medianMs": "The median.",
    "maxMs": "Of the slowest worker.",
    "status.workers[].name": "The worker's name, which is its pod's too.",
    "status.workers[].phase": "Where it stands (docs/glossary.md).",
    "status.workers[].ready": "Whether it takes traffic.",
    "status.workers[].message": "What is wrong with it, if anything is known to be.",
    "status.conditions": "Ready and WeightsSynced always; Reconciling and Stalled only while"
    " they are true (docs/how-to/change-weights.md).",
    "status.conditions[].type": "Ready, WeightsSynced, Reconciling or Stalled.",
    "status.conditions[].status": "Whether it is so.",
    "status.conditions[].reason": "Why, in one word.",
    "status.conditions[].message": "Why, in a sentence.",
    "status.conditions[].lastTransitionTime": "When `status` changed last.",
    "status.conditions[].observedGeneration": "The `metadata.generation` that it is about.",
}
_HEAD = """\
# RLInferenceFleet

<!-- Generated from the models in operator/rlfleet_operator/resource*.py; do not edit. -->

`rlfleet.dev/v1alpha1`, namespaced, short name `rlf`, category `rl`.
It has the subresources `status` and `scale`.
The user writes `spec` and the operator never does; the operator writes `status` and nobody else.
`kubectl explain rlf.spec` tells the same from the cluster.
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
    for name, title in (("spec", "What you ask for"), ("status", "What is")):
        fields = list(_fields(name, schema["properties"][name]))
        parts += [f"## {name}: {title.lower()}\n", _table(fields, has_defaults=name == "spec")]
    parts += ["## What the API server refuses\n", _rules("", schema)]
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
    """Return what a field is for; raises KeyError when nobody has said it."""
    told = _MEANINGS.get(field.path) or field.schema.get("description")
    text = str(told) if told else _MEANINGS[field.path.rpartition(".")[2]]
    return text.replace("|", "\\|").replace("\n", " ")


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
