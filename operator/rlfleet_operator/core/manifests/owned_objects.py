"""A fleet's Services, PodDisruptionBudget and Secret, with their names and labels."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlfleet_contract import paths
from rlfleet_contract.auth import ALSO_ACCEPTED, REVISION_KEY, TOKEN_KEY
from rlfleet_operator.core.model.world import FLEET_LABEL, Fleet
from rlfleet_operator.core.rollout import budget
from rlfleet_operator.crd.fleet_spec import API_VERSION, GROUP, KIND

ManifestObject = dict[str, Any]
_PRINTABLE = range(0x21, 0x7F)


class UnusableTemplateError(ValueError):
    """A user's object that is unusable; the message names the field and what to write."""


@dataclass(frozen=True, slots=True)
class AdminToken:
    """A fleet's tokens, as its Secret holds them."""

    token: str
    """The one to send."""
    also_accepted: tuple[str, ...] = ()
    """The second one, during a rotation."""
    revision: str | None = None

    @property
    def accepted(self) -> tuple[str, ...]:
        """Every token that a caller may send."""
        return self.token, *self.also_accepted


def headless_name(fleet: str) -> str:
    """Return the name of the headless Service, which gives every worker its DNS name."""
    return f"{fleet}-workers"


def secret_name(fleet: str) -> str:
    """Return the name of the Secret with the admin token."""
    return f"{fleet}-admin"


def labels_of(fleet: Fleet) -> dict[str, str]:
    """Return the labels of every object of a fleet."""
    return {
        "app.kubernetes.io/name": "rlfleet",
        "app.kubernetes.io/instance": fleet.name,
        "app.kubernetes.io/managed-by": "rlfleet",
        FLEET_LABEL: fleet.name,
    }


def metadata_of(fleet: Fleet, name: str) -> ManifestObject:
    """Return the metadata of an object that is deleted together with the fleet."""
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


def _object(fleet: Fleet, kind: str, name: str, *, api: str = "v1", **parts: Any) -> ManifestObject:
    """Return an object that belongs to the fleet, with these fields next to its metadata."""
    about = {"apiVersion": api, "kind": kind, "metadata": metadata_of(fleet, name)}
    return about | parts


def services(fleet: Fleet) -> list[ManifestObject]:
    """Return the samplers' Service, and the headless one for the workers' DNS names."""
    http = {"name": "http", "port": paths.ENGINE_PORT, "targetPort": "http", "protocol": "TCP"}
    admin = {"name": "admin", "port": paths.ADMIN_PORT, "targetPort": "admin", "protocol": "TCP"}
    selector = {FLEET_LABEL: fleet.name}
    headless = {
        "clusterIP": "None",
        # A trainer's admin calls must also reach workers that are not ready.
        "publishNotReadyAddresses": True,
        "selector": selector,
        "ports": [http, admin],
    }
    return [
        _object(fleet, "Service", fleet.name, spec={"selector": selector, "ports": [http]}),
        _object(fleet, "Service", headless_name(fleet.name), spec=headless),
    ]


def disruption_budget(fleet: Fleet) -> ManifestObject:
    """Return the PodDisruptionBudget: a drain may evict as many workers as a rollout."""
    spec = {
        "maxUnavailable": budget.max_unavailable(fleet.spec),
        "selector": {"matchLabels": {FLEET_LABEL: fleet.name}},
        # A worker that is not ready must not block a drain.
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return _object(fleet, "PodDisruptionBudget", fleet.name, api="policy/v1", spec=spec)


def secret(fleet: Fleet, token: str) -> ManifestObject:
    """Return the Secret with the fleet's admin token."""
    data = {TOKEN_KEY: token}
    return _object(fleet, "Secret", secret_name(fleet.name), type="Opaque", stringData=data)


def token_in(found: Mapping[str, Any]) -> AdminToken:
    """Return the tokens of a Secret as the sidecars read them; raises UnusableTemplateError.

    White space around one is ignored. A token must be usable in an HTTP header, and that to send
    must not be empty.
    """
    data = {key: base64.b64decode(value or "") for key, value in (found.get("data") or {}).items()}
    others = [_text(found, data, key) for key in ALSO_ACCEPTED if data.get(key, b"").strip()]
    revision = data.get(REVISION_KEY, b"").strip().decode("ascii", "replace")
    return AdminToken(_text(found, data, TOKEN_KEY), tuple(others), revision or None)


def _text(found: Mapping[str, Any], data: Mapping[str, bytes], key: str) -> str:
    token = data.get(key, b"").strip()
    if not token or any(byte not in _PRINTABLE for byte in token):
        what = "holds bytes that are invalid in HTTP headers" if token else "is empty"
        raise UnusableTemplateError(
            f"Secret {found['metadata']['name']}: data.{key} {what}, expected printable ASCII"
            " without spaces; replace it, or delete the Secret to get a new token"
        )
    return token.decode("ascii")
