"""The merge of a user's pod template into the worker's pod.

Follows kubectl's strategic merge where it matters: lists of named items are merged by name, a
container's mounts by path, other lists and scalars are replaced, null removes a field.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePosixPath
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
    if _has_keys(base) and _has_keys(override):
        return _merged_by_key(base, override)
    return override


_Key = tuple[str, str]


def _has_keys(value: Any) -> bool:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and all(isinstance(item, Mapping) and _keys_of(item) for item in value)
    )


def _keys_of(item: Mapping[str, Any]) -> list[_Key]:
    """Return what an item is merged by, and after it what else a template may mean it by.

    A volume may be mounted twice, so that the name does not identify a mount. A template
    that only changes rlfleet's own mount of a volume may still leave the path out.
    """
    path, name = item.get("mountPath"), item.get("name")
    by_path = [("path", str(PurePosixPath(path)))] if isinstance(path, str) else []
    return [*by_path, *([("name", name)] if isinstance(name, str) else [])]


def _merged_by_key(
    base: Sequence[Mapping[str, Any]], override: Sequence[Mapping[str, Any]]
) -> list[Any]:
    overrides = {_keys_of(item)[0]: item for item in override}
    known = {key for item in base for key in _keys_of(item)}
    kept = [_merged_item(item, overrides) for item in base]
    return [*kept, *(dict(item) for item in override if _keys_of(item)[0] not in known)]


def _merged_item(item: Mapping[str, Any], overrides: Mapping[_Key, Mapping[str, Any]]) -> Any:
    for key in _keys_of(item):
        item = merged(item, overrides.get(key, {}))
    return item
