"""Containers and readiness gates that other tools add to a pod, and that hold it up."""

from collections.abc import Iterator, Mapping
from datetime import datetime

from rlfleet_kubectl.core.doctor.finding import Finding, warning
from rlfleet_kubectl.core.doctor.scene import (
    container_statuses,
    gates_of,
    kubectl_in,
    named,
    seconds_since,
)
from rlfleet_kubectl.core.names import WORKER_CONTAINERS
from rlfleet_view.fleet import RawObject, age

_OUR_GATE = "rlfleet.dev/WeightsReady"
_LATE_S = 60.0
"""How long such a container may run before it has to have ended, or to be ready."""
_UNSEEN_S = 30.0
"""How long a gate may be the only thing that a pod waits for."""


def of_pod(pod: RawObject, now: datetime) -> Iterator[Finding]:
    """Yield what holds a pod up that is neither its engine nor its sidecar."""
    yield from _of_containers(pod, now)
    yield from _of_gates(pod, now)


def _field(pod: RawObject, part: str, field: str) -> list[RawObject]:
    found: list[RawObject] = (pod.get(part) or {}).get(field) or []
    return found


def _of_containers(pod: RawObject, now: datetime) -> Iterator[Finding]:
    """Yield the first container that runs for long, and is awaited."""
    every = container_statuses(pod)
    late = [one for one in every if _ran_s(one, now) > _LATE_S and not one.get("ready")]
    one = next((one for one in late if one["name"] not in WORKER_CONTAINERS), None)
    if one is None:
        return
    name, ran = one["name"], age(_ran_s(one, now))
    log = f"{kubectl_in(pod['metadata']['namespace'])} logs {pod['metadata']['name']} -c {name}"
    about = f"{named('pod', pod)} container {name}"
    if _is_before_the_engine(one, pod):
        said = f"an init container that has run for {ran}: the engine starts after it"
        yield warning("InitContainerRuns", about, said, log)
    else:
        said = f"not ready, started {ran} ago: the pod takes no traffic without it"
        yield warning("ContainerNotReady", about, said, log)


def _ran_s(container: RawObject, now: datetime) -> float:
    running = (container.get("state") or {}).get("running") or {}
    return seconds_since(running.get("startedAt"), now) or 0.0


def _is_before_the_engine(container: RawObject, pod: RawObject) -> bool:
    """Return whether the kubelet starts no other container yet: it does after a native sidecar."""
    inits = {one["name"]: one for one in _field(pod, "spec", "initContainers")}
    spec = inits.get(container["name"])
    has_started = spec and spec.get("restartPolicy") == "Always" and container.get("started")
    return spec is not None and not has_started


def _of_gates(pod: RawObject, now: datetime) -> Iterator[Finding]:
    """Yield the gates of other tools that alone keep a pod from traffic."""
    found = {one["type"]: one for one in _field(pod, "status", "conditions")}
    if not all(_is_true(found, kind) for kind in ("ContainersReady", _OUR_GATE)):
        return
    # Ready changed when the first of them became false.
    since = seconds_since(found.get("Ready", {}).get("lastTransitionTime"), now) or 0.0
    for kind in gates_of(pod) if since > _UNSEEN_S else ():
        if not _is_true(found, kind):
            why = found.get(kind, {}).get("message") or "its controller has not set it"
            said = f"takes no traffic: readiness gate {kind} is not true: {why}"
            mend = f"see the controller that sets {kind}, such as a load balancer's"
            yield warning("GateNotTrue", named("pod", pod), said, mend)


def _is_true(conditions: Mapping[str, RawObject], kind: str) -> bool:
    return conditions.get(kind, {}).get("status") == "True"
