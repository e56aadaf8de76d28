"""What kubectl returned, and what it did not: the evidence of all checks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rlfleet_kubectl.core.names import FLEET_LABEL
from rlfleet_view.fleet import ObservedFleet, RawObject, moment

SecretKeys = Mapping[str, Mapping[str, int]]
"""Name of each Secret that exists, with the length of each of its values; never a value."""


@dataclass(frozen=True, slots=True)
class Scene:
    """The objects of one namespace, by kind as kubectl names it in the plural."""

    namespace: str
    lists: Mapping[str, Sequence[RawObject]] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    """Kinds that could not be read, with kubectl's words."""

    def of(self, kind: str) -> Sequence[RawObject]:
        """Return the objects of a kind; none if they could not be read."""
        return self.lists.get(kind, ())

    def knows(self, kind: str) -> bool:
        """Return whether a kind was read, so that an object that is not listed does not exist."""
        return kind in self.lists

    def labels(self) -> Mapping[str, str]:
        """Return the labels of the namespace: its name alone, if it could not be read."""
        found = next(iter(self.of("namespaces")), {})
        known = {"kubernetes.io/metadata.name": self.namespace}
        return known | ((found.get("metadata") or {}).get("labels") or {})

    def events(self, kind: str, name: str) -> list[RawObject]:
        """Return the events about an object, the newest first."""
        about = [e for e in self.of("events") if _is_about(e, kind, name)]
        return sorted(about, key=_moment_of, reverse=True)


@dataclass(frozen=True, slots=True)
class FleetScene:
    """One fleet and what is around it."""

    fleet: ObservedFleet
    space: Scene
    operator: Scene
    secrets: SecretKeys | None
    """None if Secrets could not be read."""
    now: datetime

    @property
    def about(self) -> str:
        """What findings about it name."""
        return f"fleet {self.fleet.namespace}/{self.fleet.name}"

    def pods(self) -> Iterator[RawObject]:
        """Yield its pods."""
        for pod in self.space.of("pods"):
            if labels_of(pod).get(FLEET_LABEL) == self.fleet.name:
                yield pod


def unreachable(scenes: Sequence[Scene]) -> str:
    """Return why nothing could be read; empty if something was, or if rights are missing."""
    whys = [why for one in scenes for why in one.unread.values()]
    if any(one.lists for one in scenes) or any("orbidden" in why for why in whys):
        return ""
    return whys[0].splitlines()[-1] if whys else ""


def labels_of(raw: RawObject) -> Mapping[str, str]:
    """Return the labels of an object."""
    return (raw.get("metadata") or {}).get("labels") or {}


def named(kind: str, raw: RawObject) -> str:
    """Return what a finding calls an object: kind namespace/name."""
    metadata = raw["metadata"]
    return f"{kind} {metadata.get('namespace', '')}/{metadata['name']}"


def kubectl_in(namespace: str) -> str:
    """Return how a command for the user begins."""
    return f"kubectl -n {namespace}"


def environment(container: RawObject) -> dict[str, str]:
    """Return the variables of a container that have a value of their own."""
    return {one["name"]: str(one.get("value", "")) for one in container.get("env") or ()}


def container_statuses(pod: RawObject) -> list[RawObject]:
    """Return what a pod's status has of each container, init containers first."""
    status = pod.get("status") or {}
    return [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]


def gates_of(pod: RawObject) -> list[str]:
    """Return the types of a pod's readiness gates."""
    return [one["conditionType"] for one in (pod.get("spec") or {}).get("readinessGates") or ()]


def _is_about(event: RawObject, kind: str, name: str) -> bool:
    about = event.get("involvedObject") or {}
    return (about.get("kind"), about.get("name")) == (kind, name)


def _moment_of(event: RawObject) -> str:
    return str(
        event.get("lastTimestamp")
        or (event.get("series") or {}).get("lastObservedTime")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
        or ""
    )


def seconds_since(written: str | None, now: datetime) -> float | None:
    """Return how long ago Kubernetes wrote a time; None without one."""
    return None if not written else (now - moment(written)).total_seconds()
