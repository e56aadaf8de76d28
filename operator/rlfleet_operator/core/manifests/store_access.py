"""What a worker's pod needs for weights.source: variables, and the store's credentials. Pure."""

from typing import Any

from rlfleet_operator.crd.fleet_spec import WeightsSpec

_NAME = "store"
_FOLDER = "/var/run/rlfleet/store"


def env(weights: WeightsSpec) -> dict[str, str]:
    """Return the sidecar's variables about where versions are: on a volume, or in a store."""
    source = weights.source
    if source is None:
        return {"RLFLEET_WEIGHTS_PATH": weights.template}
    found = {
        "RLFLEET_STORE_ENDPOINT": source.endpoint,
        "RLFLEET_STORE_REGION": source.region,
        "RLFLEET_STORE_ANONYMOUS": "true" if source.anonymous else None,
        "RLFLEET_STORE_CREDENTIALS": _FOLDER if source.credentials_secret else None,
    }
    given = {name: value for name, value in found.items() if value}
    return {"RLFLEET_WEIGHTS_SOURCE": source.url, **given}


def volumes(weights: WeightsSpec | None) -> list[dict[str, Any]]:
    """Return the volume with the store's credentials.

    Optional, because an engine serves without them; the sidecar reports what it lacks.
    """
    name = None if weights is None or weights.source is None else weights.source.credentials_secret
    return [{"name": _NAME, "secret": {"secretName": name, "optional": True}}] if name else []


def mounts(weights: WeightsSpec | None) -> list[dict[str, Any]]:
    """Return the mount of the credentials, for the sidecar alone: an engine reads no store."""
    named = volumes(weights)
    return [{"name": one["name"], "mountPath": _FOLDER, "readOnly": True} for one in named]
