"""Which containers and readiness gates of other tools a worker's pod waits for. Pure."""

from typing import Any

from rlfleet_operator.core.model.world import READINESS_GATE, SIDECAR_CONTAINER, Raw


def awaited_init(raw: Raw) -> str | None:
    """Return the init container, added by another tool, before which the kubelet starts no other.

    One that always restarts is a native sidecar: the kubelet waits until it has started.
    """
    native = {c["name"] for c in _spec(raw, "initContainers") if c.get("restartPolicy") == "Always"}
    for one in _status(raw, "initContainerStatuses"):
        has_started = one["name"] in native and one.get("started")
        if _runs(one) and not has_started:
            return None if one["name"] == SIDECAR_CONTAINER else str(one["name"])
    return None


def unready(raw: Raw) -> str | None:
    """Return what keeps a pod from Ready: a container that runs, else a gate of another tool."""
    statuses = container_statuses(raw.get("status") or {})
    containers = (c["name"] for c in statuses if _runs(c) and not c.get("ready"))
    if name := next(containers, None):
        return f"container {name} not ready"
    true = {c["type"] for c in _status(raw, "conditions") if c.get("status") == "True"}
    gates = (gate["conditionType"] for gate in _spec(raw, "readinessGates"))
    gate = next((gate for gate in gates if gate not in {READINESS_GATE, *true}), None)
    return gate and f"readiness gate {gate} not true"


def container_statuses(status: Raw) -> list[Raw]:
    """Return what a pod's status has of each container, init containers first."""
    return [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]


def _runs(container: Raw) -> bool:
    return "running" in (container.get("state") or {})


def _spec(raw: Raw, field: str) -> list[Any]:
    return (raw.get("spec") or {}).get(field) or []


def _status(raw: Raw, field: str) -> list[Any]:
    return (raw.get("status") or {}).get(field) or []
