"""Parses a worker's pod from the API server's JSON."""

from collections.abc import Mapping

from rlfleet_contract import paths
from rlfleet_operator.core.model.fleet import names_fleet
from rlfleet_operator.core.model.pod_additions import awaited_init, container_statuses, unready
from rlfleet_operator.core.model.worker_pod import Pod, log_of, was_ready
from rlfleet_operator.core.model.world import (
    ADMIN_PORT_NAME,
    ENGINE_CONTAINER,
    FLEET_LABEL,
    ORDINAL_LABEL,
    READINESS_GATE,
    SIDECAR_CONTAINER,
    TEMPLATE_ANNOTATION,
    TLS_VOLUME,
    VERSION_LABEL,
    Fleet,
    Raw,
    worker_name,
)
from rlfleet_operator.crd.field_types import epoch_of
from rlfleet_view.last_words import last_words

ZONE_LABEL = "topology.kubernetes.io/zone"
"""Kubernetes from 1.35 on copies it from the node to its pods."""


def identity_of(fleet: Fleet, ordinal: int) -> dict[str, str]:
    """Return the labels that select the pod of one worker."""
    return {FLEET_LABEL: fleet.name, ORDINAL_LABEL: str(ordinal)}


def lost_label(raw: Raw, fleet: Fleet, ordinal: int) -> str | None:
    """Return a message if a pod of the fleet lost a label; None if it has all or terminates."""
    metadata = raw["metadata"]
    labels = metadata.get("labels") or {}
    for label, value in identity_of(fleet, ordinal).items():
        if labels.get(label) != value and "deletionTimestamp" not in metadata:
            return (
                f"Pod {metadata['name']} lost its label {label}={value}:"
                " restore it, or delete the pod"
            )
    return None


def pod_from(raw: Raw) -> Pod | None:
    """Parse a worker's pod; None if its labels and its name do not match."""
    metadata, status = raw["metadata"], raw.get("status") or {}
    labels = metadata.get("labels") or {}
    fleet, ordinal = labels.get(FLEET_LABEL, ""), labels.get(ORDINAL_LABEL, "")
    if not ordinal.isdecimal() or metadata["name"] != worker_name(fleet, int(ordinal)):
        return None
    conditions = {c["type"]: c for c in status.get("conditions") or ()}
    gate = conditions.get(READINESS_GATE)
    ready_changed_at = _epoch(conditions.get("Ready", {}).get("lastTransitionTime"))
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        ordinal=int(ordinal),
        owner_uid=_owner_uid(metadata, fleet),
        template_hash=(metadata.get("annotations") or {}).get(TEMPLATE_ANNOTATION, ""),
        address=status.get("podIP"),
        phase=status.get("phase", "Pending"),
        ready=conditions.get("Ready", {}).get("status") == "True",
        weights_ready=None if gate is None else gate["status"] == "True",
        version_label=labels.get(VERSION_LABEL),
        terminating="deletionTimestamp" in metadata,
        # The time includes the grace period.
        ends_by=_epoch(metadata.get("deletionTimestamp")),
        engine_restarts=int(_engine(status).get("restartCount", 0)),
        created_at=_epoch(metadata.get("creationTimestamp")),
        engine_exit=_last_exit(_engine(status)),
        engine_since=_running_since(_engine(status)),
        trouble=_trouble(metadata["name"], status, conditions),
        crash=_restarted(metadata["name"], status, ready_changed_at),
        topology=_topology(raw, labels),
        ready_changed_at=ready_changed_at,
        weights_ready_at=_epoch((gate or {}).get("lastTransitionTime")),
        admin_port=_admin_port(raw),
        tls_secret=_tls_secret(raw),
        finalizers=tuple(metadata.get("finalizers") or ()),
        awaited_init=awaited_init(raw),
        unready=unready(raw),
    )


def _owner_uid(metadata: Raw, fleet: str) -> str:
    """Return the UID of the fleet that owns a pod; other tools may add owners before it."""
    owners = metadata.get("ownerReferences") or ()
    return next((owner["uid"] for owner in owners if names_fleet(owner, fleet)), "")


def _topology(raw: Raw, labels: Mapping[str, str]) -> tuple[str, str]:
    return labels.get(ZONE_LABEL, ""), (raw.get("spec") or {}).get("nodeName") or ""


def _admin_port(raw: Raw) -> int:
    """Return the port of the sidecar, which a template may have changed."""
    spec = raw.get("spec") or {}
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    sidecars = (c for c in containers if c.get("name") == SIDECAR_CONTAINER)
    ports = (port for c in sidecars for port in c.get("ports") or ())
    named = (int(p["containerPort"]) for p in ports if p.get("name") == ADMIN_PORT_NAME)
    return next(named, paths.ADMIN_PORT)


def _tls_secret(raw: Raw) -> str | None:
    volumes = (raw.get("spec") or {}).get("volumes") or ()
    secrets = (v.get("secret") or {} for v in volumes if v.get("name") == TLS_VOLUME)
    return next((s.get("secretName") for s in secrets), None)


def _epoch(time: str | None) -> float | None:
    return None if time is None else epoch_of(time)


def _engine(status: Raw) -> Raw:
    found = (c for c in container_statuses(status) if c["name"] == ENGINE_CONTAINER)
    return next(found, {})


def _running_since(container: Raw) -> float | None:
    return _epoch(((container.get("state") or {}).get("running") or {}).get("startedAt"))


_PLAIN_REASONS = {"Error", "Completed", None}
"""Reasons that add nothing to the exit code."""


def _last_exit(container: Raw) -> str | None:
    ends = ((container.get(state) or {}).get("terminated") for state in ("state", "lastState"))
    last = next((end for end in ends if end), None)
    if last is None:
        return None
    reason, said = last.get("reason"), last_words(last)
    code = f"{last.get('exitCode')}" + ("" if reason in _PLAIN_REASONS else f", {reason}")
    return f"{code}: {said}" if said else code


def _crash(pod: str, container: Raw) -> str:
    """Return how a container crashed: the kubelet's own message has only the time of its pause."""
    ended = _last_exit(container)
    how = f"restart {container.get('restartCount', 0)}" + (f", exit code {ended}" if ended else "")
    return f"{how}; {log_of(pod, container['name'])}"


def _restarted(pod: str, status: Raw, ready_changed_at: float | None) -> str | None:
    """Return how the first container that is restarted and not ready ended last.

    One that was ready since then hangs: how it ended before is not why.
    """
    for container in container_statuses(status):
        is_down = container.get("restartCount") and not container.get("ready")
        if container["name"] == ENGINE_CONTAINER or not is_down:
            continue
        if not was_ready(_running_since(container), ready_changed_at):
            return f"{container['name']}: {_crash(pod, container)}"
    return None


_PATIENCE = {"ContainerCreating", "PodInitializing"}
_CRASHES = "CrashLoopBackOff"


def _trouble(pod: str, status: Raw, conditions: Mapping[str, Raw]) -> str | None:
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return f"{scheduled.get('reason')}: {scheduled.get('message', '')}"
    for container in container_statuses(status):
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason = waiting.get("reason")
        if reason and reason not in _PATIENCE:
            why = _crash(pod, container) if reason == _CRASHES else waiting.get("message", "")
            return f"{container['name']}: {reason}: {why}"
    if status.get("phase") == "Failed":
        return f"{status.get('reason', 'Failed')}: {status.get('message', '')}"
    return None
