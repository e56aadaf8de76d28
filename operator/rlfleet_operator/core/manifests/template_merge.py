"""How a user's pod template changes the pod that rlfleet makes.

As kubectl's strategic merge does for the lists that matter: lists of named
things are merged by name, other lists and scalars are replaced, null removes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rlfleet_operator.core.manifests.owned_objects import ManifestObject, UnusableTemplateError
from rlfleet_operator.core.model.world import READINESS_GATE

_ADDED = ("labels", "annotations")
_OUR_GATE = {"conditionType": READINESS_GATE}


def allowed(template: Mapping[str, Any]) -> ManifestObject:
    """Return what a template may change: it adds labels and annotations, and renames nothing.

    Raises UnusableTemplateError where it holds no map.
    """
    metadata = _map_in(template, "metadata", "template")
    return {
        "metadata": {key: _map_in(metadata, key, "template.metadata") for key in _ADDED},
        "spec": _map_in(template, "spec", "template"),
    }


def _map_in(holder: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
    """Return a map that the user wrote, empty when it is null or left out."""
    found = holder.get(key)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise UnusableTemplateError(
            f"spec.{path}.{key} is {found!r:.100}: write a map, or leave it out"
        )
    return found


def with_ours(gates: Any) -> Any:
    """Return a template's readiness gates and ours; what is no list the API server refuses."""
    if gates is None:
        return [_OUR_GATE]
    is_whole = not isinstance(gates, list) or _OUR_GATE in gates
    return gates if is_whole else [_OUR_GATE, *gates]


def merged(base: Any, override: Any) -> Any:
    """Return ``base`` with ``override`` laid over it; neither is changed."""
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
