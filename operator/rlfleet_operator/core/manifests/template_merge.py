"""The merge of a user's pod template into the worker's pod.

Follows kubectl's strategic merge where it matters: lists of named items are merged by name, other
lists and scalars are replaced, null removes a field.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rlfleet_operator.core.manifests.owned_objects import ManifestObject, UnusableTemplateError
from rlfleet_operator.core.model.world import READINESS_GATE

_ADDED = ("labels", "annotations")
_UNUSED = (
    *("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation"),
    *("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"),
    *("ownerReferences", "finalizers", "managedFields"),
)
"""Other fields that Kubernetes knows in a template's metadata; a worker gets none of them."""
_OUR_GATE = {"conditionType": READINESS_GATE}


def allowed(template: Mapping[str, Any]) -> ManifestObject:
    """Return the parts of a template that are used: labels, annotations and spec.

    Raises UnusableTemplateError if one of them is no map, or for a field that is none of a
    template's.
    """
    metadata = _map_in(template, "metadata", "template")
    _demand_known(template, {"metadata", "spec"}, "template")
    _demand_known(metadata, {*_ADDED, *_UNUSED}, "template.metadata")
    return {
        "metadata": {key: _map_in(metadata, key, "template.metadata") for key in _ADDED},
        "spec": _map_in(template, "spec", "template"),
    }


def _demand_known(holder: Mapping[str, Any], known: Collection[str], path: str) -> None:
    unknown = sorted(key for key, value in holder.items() if value is not None and key not in known)
    if unknown:
        raise UnusableTemplateError(
            f"spec.{path}.{unknown[0]:.60}: unknown field; correct its name, or remove it"
        )


def _map_in(holder: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
    """Return a map that the user wrote, empty if it is null or absent."""
    found = holder.get(key)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise UnusableTemplateError(
            f"spec.{path}.{key}: got {found!r:.100}, expected a map; write one, or remove the field"
        )
    return found


def with_ours(gates: Any) -> Any:
    """Return a template's readiness gates and rlfleet's; the API server rejects anything else."""
    if gates is None:
        return [_OUR_GATE]
    is_whole = not isinstance(gates, list) or _OUR_GATE in gates
    return gates if is_whole else [_OUR_GATE, *gates]


def merged(base: Any, override: Any) -> Any:
    """Return ``base`` with ``override`` merged over it; neither is changed."""
    if isinstance(base, Mapping) and isinstance(override, Mapping):
        result = {key: value for key, value in base.items() if key not in override}
        for key, value in override.items():
            if value is not None:
                result[key] = merged(base[key], value) if key in base else value
        return result
    if _is_named(base) and _is_named(override):
        return _merged_by_name(base, override)
    return override


def _is_named(value: Any) -> bool:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and all(isinstance(item, Mapping) and isinstance(item.get("name"), str) for item in value)
    )


def _merged_by_name(
    base: Sequence[Mapping[str, Any]], override: Sequence[Mapping[str, Any]]
) -> list[Any]:
    overrides = {item["name"]: item for item in override}
    names = {item["name"] for item in base}
    kept = [merged(item, overrides.get(item["name"], {})) for item in base]
    return [*kept, *(dict(item) for item in override if item["name"] not in names)]
