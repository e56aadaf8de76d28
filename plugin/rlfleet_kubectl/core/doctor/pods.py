"""Pods that are not scheduled, images that are not pulled, containers that crash."""

import json
from collections.abc import Iterator
from datetime import datetime

from rlfleet_kubectl.core.doctor import additions, commands
from rlfleet_kubectl.core.doctor.finding import EACH, Finding, error, warning
from rlfleet_kubectl.core.doctor.scene import (
    Scene,
    container_statuses,
    gates_of,
    kubectl_in,
    labels_of,
    named,
    seconds_since,
)
from rlfleet_kubectl.core.names import FLEET_LABEL, WORKER_CONTAINERS
from rlfleet_view.fleet import RawObject, age
from rlfleet_view.last_words import last_words

_PULLS = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}
_CRASHES = {"CrashLoopBackOff", "RunContainerError", "StartError"}
_CREATIONS = {"CreateContainerConfigError", "CreateContainerError"}
_MOUNTS = {"FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox"}
_OOM = "OOMKilled"
_UNSCHEDULABLE = "Unschedulable"
_LATE_S = 120.0
"""How long after its grace period a pod that is deleted counts as stuck."""
_UNSEEN_S = 30.0
"""How long a pod with ready containers is not ready before its node counts as lost, and one without
a node before no scheduler looks at it."""
_RECENT_S = 3600.0
"""For so long a container's restart is worth a warning."""
_OFTEN = 3
"""A container that is not ready after so many restarts does not come up by itself."""
_HEAD, _TAIL = 160, 120
"""So much of a long message is shown: its end often has the cause."""
_WAYS_TO_A_NODE = (
    ("persistentvolumeclaim", "mend the claim, or the volume in spec.model and spec.weights"),
    ("Insufficient", "lower spec.engine.resources.requests, or add a node"),
    ("untolerated taint", "set spec.template.spec.tolerations, or add a node"),
    ("node affinity/selector", "change spec.template.spec.nodeSelector or affinity"),
)


def crashed(space: Scene) -> list[tuple[RawObject, RawObject]]:
    """Return each container that ended, is not ready again and wrote no cause, with its pod.

    Of an exit with 0 Kubernetes takes no message from the log, so the engine wrote the one there.
    """
    return [
        (pod, container)
        for pod in space.of("pods")
        if FLEET_LABEL in labels_of(pod)
        for container in container_statuses(pod)
        if container["name"] in WORKER_CONTAINERS and (end := last_end(container))
        if not container.get("ready") and (end.get("exitCode") or not end.get("message"))
    ]


def of_pod(pod: RawObject, space: Scene, now: datetime) -> Iterator[Finding]:
    """Yield what is wrong with a pod."""
    about, status = named("pod", pod), pod.get("status") or {}
    command = kubectl_in(space.namespace)
    if pod["metadata"].get("deletionTimestamp"):
        yield from _of_deleted(pod, about, command, now)
        return
    if status.get("phase") == "Failed":
        said = f"{status.get('reason') or 'Failed'}: {_short(status.get('message'))}"
        yield error(
            "PodFailed", about, said, f"{command} delete pod {EACH}", pod["metadata"]["name"]
        )
        return
    yield from _unscheduled(status, about)
    yield from _unseen(pod, about, now)
    yield from _of_node(pod, about, now)
    yield from _not_mounted(pod, space, about)
    for container in container_statuses(pod):
        yield from _of_container(container, pod, command, now)
    if FLEET_LABEL in labels_of(pod):
        yield from additions.of_pod(pod, now)


def _of_deleted(pod: RawObject, about: str, command: str, now: datetime) -> Iterator[Finding]:
    # Kubernetes writes the time at which the grace period ends.
    late = seconds_since(pod["metadata"]["deletionTimestamp"], now)
    if late is not None and late > _LATE_S:
        name = pod["metadata"]["name"]
        node = (pod.get("spec") or {}).get("nodeName", "its node")
        yield warning(
            "PodTerminating",
            about,
            f"still terminating {age(late)} after its grace period; node {node} may be lost",
            f"once {node} is off: {command} delete pod {EACH} --force",
            name,
        )


def _unscheduled(status: RawObject, about: str) -> Iterator[Finding]:
    for one in status.get("conditions") or ():
        if (one["type"], one["status"], one.get("reason")) == (
            "PodScheduled",
            "False",
            _UNSCHEDULABLE,
        ):
            said = _short(one.get("message"))
            fits = (mend for word, mend in _WAYS_TO_A_NODE if word in said)
            mend = next(fits, "free or add a node that fits spec.engine and spec.template")
            yield error(_UNSCHEDULABLE, about, f"no node takes it: {said}", mend)


def _unseen(pod: RawObject, about: str, now: datetime) -> Iterator[Finding]:
    """Yield a pod that no scheduler has said anything about."""
    status = pod.get("status") or {}
    waited = seconds_since(pod["metadata"].get("creationTimestamp"), now)
    has_word = (pod.get("spec") or {}).get("nodeName") or status.get("conditions")
    if status.get("phase") != "Pending" or has_word or waited is None or waited < _UNSEEN_S:
        return
    said = f"no scheduler has looked at it for {age(waited)}"
    mend = "run kube-scheduler, or the scheduler that spec.template.spec.schedulerName names"
    yield error(_UNSCHEDULABLE, about, said, mend)


def _of_node(pod: RawObject, about: str, now: datetime) -> Iterator[Finding]:
    """Yield a pod that only Kubernetes calls not ready: its node no longer reports it."""
    spec, conditions = pod.get("spec") or {}, (pod.get("status") or {}).get("conditions")
    if _is_unseen(conditions or [], gates_of(pod), now):
        node = spec.get("nodeName", "its node")
        said = f"out of traffic, though its containers are ready: node {node} may be lost"
        yield error("PodNotReady", about, said, f"kubectl describe node {node}; mend its kubelet")


def _is_unseen(conditions: list[RawObject], gates: list[str], now: datetime) -> bool:
    """Return whether all that a kubelet makes Ready of has been true for longer than it takes."""
    known = {one["type"]: one for one in conditions}
    expected = {"Ready": "False"} | dict.fromkeys(("ContainersReady", *gates), "True")
    found = [known.get(kind, {}) for kind in expected]
    since = min(seconds_since(one.get("lastTransitionTime"), now) or 0.0 for one in found)
    return [one.get("status") for one in found] == [*expected.values()] and since > _UNSEEN_S


def waits_for_claim(one: Finding) -> bool:
    """Return whether a claim keeps a pod from its node: the claim's own finding says more."""
    return one.check == _UNSCHEDULABLE and "persistentvolumeclaim" in one.found.lower()


def _not_mounted(pod: RawObject, space: Scene, about: str) -> Iterator[Finding]:
    """Yield the kubelet's latest complaint while no container has started."""
    status = pod.get("status") or {}
    if status.get("phase") != "Pending" or not (pod.get("spec") or {}).get("nodeName"):
        return
    if any("running" in (one.get("state") or {}) for one in container_statuses(pod)):
        return
    for event in space.events("Pod", pod["metadata"]["name"]):
        if event.get("reason") in _MOUNTS:
            said = f"{event['reason']}: {_short(event.get('message'))}"
            mend = "mend what the message names: a Secret, a claim, or the node's network"
            yield error("VolumeNotMounted", about, said, mend)
            return


def _of_container(
    container: RawObject, pod: RawObject, command: str, now: datetime
) -> Iterator[Finding]:
    name, waiting = container["name"], (container.get("state") or {}).get("waiting") or {}
    about = f"{named('pod', pod)} container {name}"
    reason, said = waiting.get("reason", ""), _short(waiting.get("message"))
    if reason in _PULLS:
        found = f"{reason}: got image {container.get('image', '')}, which cannot be pulled"
        yield error("ImageNotPulled", about, _with(found, said), _pull_mend(name, pod, said))
    elif reason in _CREATIONS:
        mend = "mend what the message names: a Secret, a ConfigMap or a field of the template"
        yield error("ContainerNotCreated", about, f"{reason}: {said}", mend)
    elif reason in _CRASHES:
        found = f"{reason}, {container.get('restartCount', 0)} restarts: {_end(container)}"
        yield error("ContainerCrashes", about, found, _crash_mend(container, pod, command))
    else:
        yield from _restarted(container, pod, about, command, now)


def _restarted(
    container: RawObject, pod: RawObject, about: str, command: str, now: datetime
) -> Iterator[Finding]:
    last = last_end(container)
    ago = seconds_since(last.get("finishedAt"), now)
    if not last or ago is None or ago > _RECENT_S:
        return
    # vLLM's server exits with 0 when its engine has died, but a worker's engine ends with its pod.
    if last.get("exitCode") == 0 and container["name"] not in WORKER_CONTAINERS:
        return
    count = container.get("restartCount", 0)
    is_up = "running" in (container.get("state") or {})
    is_lasting = count < _OFTEN or container.get("ready", False)
    make = warning if is_up and is_lasting else error
    found = f"restarted {count} times: {_end(container)}"
    yield make("ContainerRestarted", about, found, _crash_mend(container, pod, command))


def _crash_mend(container: RawObject, pod: RawObject, command: str) -> str:
    name = container["name"]
    if last_end(container).get("reason") == _OOM:
        return f"raise the limit (now {_memory(pod, name)}): {_memory_mend(name, pod)}"
    return f"{command} logs {pod['metadata']['name']} -c {name} --previous"


def _memory(pod: RawObject, name: str) -> str:
    spec = pod.get("spec") or {}
    for one in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        if one["name"] == name:
            limits = (one.get("resources") or {}).get("limits") or {}
            return str(limits.get("memory") or "none: that of the node")
    return "unknown"


def _memory_mend(name: str, pod: RawObject) -> str:
    if name in WORKER_CONTAINERS:
        return patch(pod, {name: {"resources": {"limits": {"memory": "SIZE"}}}})
    return _upgrade(pod, "resources.limits.memory=SIZE")


def _upgrade(pod: RawObject, *values: str) -> str:
    return commands.upgrade(commands.release_of(pod), pod["metadata"]["namespace"], *values)


def _pull_mend(name: str, pod: RawObject, said: str) -> str:
    is_denied = any(word in said for word in ("authorization", "unauthorized", "403", "401"))
    if name not in WORKER_CONTAINERS:
        fields = "image.repository=NAME,image.tag=TAG"
        return _upgrade(pod, "imagePullSecrets[0].name=SECRET" if is_denied else fields)
    if is_denied:
        secrets = {"imagePullSecrets": [{"name": "SECRET"}]}
        return patch(pod, {"template": {"spec": secrets}})
    return patch(pod, {_image_field(name, pod): {"image": "IMAGE"}})


def _image_field(name: str, pod: RawObject) -> str:
    """Return what sets the image: a sidecar has the engine's, unless it has its own."""
    spec = pod.get("spec") or {}
    every = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    images = {one["name"]: one.get("image") for one in every}
    return "engine" if images.get("engine") == images.get(name) else name


def patch(pod: RawObject, spec: RawObject) -> str:
    """Return the command that changes the spec of a pod's fleet."""
    metadata = pod["metadata"]
    fleet = (metadata.get("labels") or {}).get(FLEET_LABEL, "FLEET")
    body = json.dumps({"spec": spec}, separators=(",", ":"))
    return f"{kubectl_in(metadata['namespace'])} patch rlf {fleet} --type=merge -p '{body}'"


def last_end(container: RawObject) -> RawObject:
    """Return how the container ended last; empty if it has not."""
    now: RawObject | None = (container.get("state") or {}).get("terminated")
    return now or (container.get("lastState") or {}).get("terminated") or {}


def _end(container: RawObject) -> str:
    last = last_end(container)
    reason, code = last.get("reason", "unknown reason"), last.get("exitCode")
    return _with(f"{reason}, exit code {code}", last_words(last, _HEAD + _TAIL))


def _with(found: str, more: str) -> str:
    return f"{found}: {more}" if more else found


def _short(message: str | None) -> str:
    text = " ".join((message or "").split())
    return text if len(text) <= _HEAD + _TAIL else f"{text[:_HEAD]} ... {text[-_TAIL:]}"
