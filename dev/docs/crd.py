"""The CustomResourceDefinition, made from the operator's pydantic models.

pydantic writes JSON schema; an API server takes the narrower "structural"
kind: no $ref, no anyOf with null, no titles, no null defaults. This file is
that difference and nothing else.
"""

from typing import Any

import yaml

from rlfleet_operator.crd import fleet_spec, fleet_status

Schema = dict[str, Any]

_DROPPED = {"title", "$defs", "additionalProperties"}
_NAME_RULE = {
    "rule": "self.metadata.name.matches('^[a-z]([-a-z0-9]{0,48}[a-z0-9])?$')",
    "message": "metadata.name must be a DNS label of at most 50 characters that begins with a"
    " letter (worker pods and Services are named after it)",
}
_NEIGHBOUR_RULE = {
    # One that is driven already keeps its name: a rule that it fails would refuse its status.
    "rule": "!self.metadata.name.matches('-(workers|admin)$')"
    " || (has(self.status) && has(self.status.selector))",
    "message": "metadata.name must not end with -workers or -admin: the Service and the Secret of"
    " another fleet are named so",
}
_COLUMNS = (
    ("Desired", "integer", ".spec.replicas", 0),
    ("Ready", "integer", ".status.readyReplicas", 0),
    ("Target", "string", ".status.target", 0),
    ("Serving", "string", ".status.serving", 0),
    ("Proved", "string", ".status.proved", 0),
    ("Phase", "string", ".status.rollout.phase", 0),
    ("Status", "string", ".status.summary", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Window-ms", "integer", ".status.rollout.timings.window.maxMs", 1),
    ("Quarantined", "integer", ".status.quarantinedReplicas", 1),
    ("Selector", "string", ".status.selector", 1),
)


def structural(schema: Schema, definitions: Schema) -> Schema:
    """Rewrite one JSON schema so that an API server accepts it; keeps its meaning."""
    if "$ref" in schema:
        target = definitions[schema["$ref"].rsplit("/", 1)[1]]
        return structural({**target, **_without(schema, {"$ref"})}, definitions)
    if "allOf" in schema and len(schema["allOf"]) == 1:
        return structural({**schema["allOf"][0], **_without(schema, {"allOf"})}, definitions)
    if "anyOf" in schema:
        (only,) = (option for option in schema["anyOf"] if option.get("type") != "null")
        return structural({**only, **_without(schema, {"anyOf"})}, definitions)
    return {key: value for key, value in _members(schema, definitions) if value is not None}


def _without(schema: Schema, keys: set[str]) -> Schema:
    return {key: value for key, value in schema.items() if key not in keys}


def _members(schema: Schema, definitions: Schema) -> list[tuple[str, Any]]:
    members: list[tuple[str, Any]] = []
    for key, value in schema.items():
        if key == "properties":
            fields = {name: structural(field, definitions) for name, field in value.items()}
            members.append((key, fields))
        elif key == "items" or (key == "additionalProperties" and isinstance(value, dict)):
            members.append((key, structural(value, definitions)))
        elif key == "const":
            members.append(("enum", [value]))
        elif key == "default":
            members.append((key, _without_nulls(value)))
        elif key not in _DROPPED:
            members.append((key, value))
    return members


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return value


def _spec_schema() -> Schema:
    raw = fleet_spec.FleetSpec.model_json_schema(by_alias=True)
    return structural(raw, raw.get("$defs", {}))


def _status_schema() -> Schema:
    raw = fleet_status.FleetStatus.model_json_schema(by_alias=True)
    status = structural(raw, raw.get("$defs", {}))
    for field in status["properties"].values():
        field.pop("default", None)
    # Nothing may look current before the operator has seen it (kstatus).
    status["properties"]["observedGeneration"]["default"] = -1
    status["default"] = {"observedGeneration": -1}
    return status


def definition() -> Schema:
    """Return the whole CustomResourceDefinition."""
    columns = [
        {"name": name, "type": kind, "jsonPath": path, **({"priority": p} if p else {})}
        for name, kind, path, p in _COLUMNS
    ]
    schema = {
        "type": "object",
        "description": "A fleet of vLLM workers that serve one declared version of the weights.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _spec_schema(),
            "status": _status_schema(),
        },
        "x-kubernetes-validations": [_NAME_RULE, _NEIGHBOUR_RULE],
    }
    version = {
        "name": fleet_spec.API_VERSION,
        "served": True,
        "storage": True,
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{fleet_spec.PLURAL}.{fleet_spec.GROUP}"},
        "spec": {
            "group": fleet_spec.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": fleet_spec.KIND,
                "listKind": f"{fleet_spec.KIND}List",
                "plural": fleet_spec.PLURAL,
                "singular": fleet_spec.KIND.lower(),
                "shortNames": ["rlf"],
                "categories": ["rl"],
            },
            "versions": [version],
        },
    }


def as_yaml() -> str:
    """Return the definition as it is committed under crds/."""
    head = "# Generated from operator/rlfleet_operator/crd by `make generate`; do not edit.\n"
    return head + yaml.safe_dump(definition(), sort_keys=False, width=100)
