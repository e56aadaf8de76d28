"""What stands around a fleet's pods: Services, PodDisruptionBudget, Secret; names and labels."""

import base64
from collections.abc import Mapping
from typing import Any

from rlfleet_contract import paths
from rlfleet_operator.core.model.world import FLEET_LABEL, Fleet
from rlfleet_operator.core.rollout import budget
from rlfleet_operator.crd.fleet_spec import API_VERSION, GROUP, KIND

ManifestObject = dict[str, Any]
_PRINTABLE = range(0x21, 0x7F)


class UnusableTemplateError(ValueError):
    """A user's object from which nothing can be made: names the field and the way out."""


def headless_name(fleet: str) -> str:
    """Name the headless Service that gives every worker its DNS name."""
    return f"{fleet}-workers"


def secret_name(fleet: str) -> str:
    """Name the Secret that holds the admin token."""
    return f"{fleet}-admin"


def labels_of(fleet: Fleet) -> dict[str, str]:
    """Return the labels of everything that belongs to a fleet."""
    return {
        "app.kubernetes.io/name": "rlfleet",
        "app.kubernetes.io/instance": fleet.name,
        "app.kubernetes.io/managed-by": "rlfleet",
        FLEET_LABEL: fleet.name,
    }


def metadata_of(fleet: Fleet, name: str) -> ManifestObject:
    """Return the metadata of an object that goes when the fleet goes."""
    return {
        "name": name,
        "namespace": fleet.namespace,
        "labels": labels_of(fleet),
        "ownerReferences": [
            {
                "apiVersion": f"{GROUP}/{API_VERSION}",
                "kind": KIND,
                "name": fleet.name,
                "uid": fleet.uid,
                "controller": True,
                # Deletion of the fleet never waits for a worker.
                "blockOwnerDeletion": False,
            }
        ],
    }


def services(fleet: Fleet) -> list[ManifestObject]:
    """Return the samplers' Service and the headless one for names."""
    http = {"name": "http", "port": paths.ENGINE_PORT, "targetPort": "http", "protocol": "TCP"}
    admin = {"name": "admin", "port": paths.ADMIN_PORT, "targetPort": "admin", "protocol": "TCP"}
    selector = {FLEET_LABEL: fleet.name}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata_of(fleet, fleet.name),
            "spec": {"selector": selector, "ports": [http]},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata_of(fleet, headless_name(fleet.name)),
            "spec": {
                "clusterIP": "None",
                # A trainer's admin calls must reach a worker that is not ready, too.
                "publishNotReadyAddresses": True,
                "selector": selector,
                "ports": [http, admin],
            },
        },
    ]


def disruption_budget(fleet: Fleet) -> ManifestObject:
    """Return the PodDisruptionBudget: a drain takes no more than a rollout may."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata_of(fleet, fleet.name),
        "spec": {
            "maxUnavailable": budget.max_unavailable(fleet.spec),
            "selector": {"matchLabels": {FLEET_LABEL: fleet.name}},
            # A worker that is not ready serves nobody: it must not block a drain.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def secret(fleet: Fleet, token: str) -> ManifestObject:
    """Return the Secret with the fleet's admin token."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata_of(fleet, secret_name(fleet.name)),
        "type": "Opaque",
        "stringData": {"token": token},
    }


def token_in(found: Mapping[str, Any]) -> str:
    """Return the token that a Secret holds, as its sidecars read it; raises UnusableTemplateError.

    White space around it does not count. Nothing else is let through that a header could not
    carry, and no empty token, which lets nobody in anywhere.
    """
    token = base64.b64decode((found.get("data") or {}).get("token") or "").strip()
    if not token or any(byte not in _PRINTABLE for byte in token):
        what = "holds bytes that no HTTP header carries" if token else "is empty"
        raise UnusableTemplateError(
            f"Secret {found['metadata']['name']}: data.token {what}; expected printable ASCII"
            " without spaces. Put such a token there, or delete the Secret and a new one is made"
        )
    return token.decode("ascii")
