"""What a worker's pod needs for spec.sidecar.tlsSecret: variables, Secret, scheme. Pure.

A pod's own volume says whether its sidecar speaks TLS, so that old and new pods of a fleet that
changes to TLS are both reached.
"""

from typing import Any

from rlfleet_operator.core.manifests.owned_objects import headless_name
from rlfleet_operator.core.model.world import TLS_VOLUME, Fleet

_FOLDER = "/var/run/rlfleet/tls"


def server_name(fleet: str, namespace: str) -> str:
    """Return the DNS name that the certificate of a fleet's sidecars must have."""
    return f"{headless_name(fleet)}.{namespace}.svc"


def env(fleet: Fleet) -> dict[str, str]:
    """Return the sidecar's variables."""
    if fleet.spec.sidecar.tls_secret is None:
        return {}
    name = server_name(fleet.name, fleet.namespace)
    return {"RLFLEET_TLS_DIR": _FOLDER, "RLFLEET_TLS_NAME": name}


def volumes(fleet: Fleet) -> list[dict[str, Any]]:
    """Return the volume of the Secret. Without the Secret the pod does not start."""
    name = fleet.spec.sidecar.tls_secret
    return [{"name": TLS_VOLUME, "secret": {"secretName": name}}] if name else []


def mounts(fleet: Fleet) -> list[dict[str, Any]]:
    """Return the mount of the Secret, for the sidecar alone."""
    named = volumes(fleet)
    return [{"name": one["name"], "mountPath": _FOLDER, "readOnly": True} for one in named]


def scheme(fleet: Fleet) -> dict[str, str]:
    """Return how the kubelet probes the sidecar; it does not check the certificate."""
    return {"scheme": "HTTPS"} if fleet.spec.sidecar.tls_secret else {}
