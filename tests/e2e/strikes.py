"""What a campaign of kills does: drawn from a seed, so that each rollout can be run again."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dev.demo import stage
from dev.shell import Shell
from tests.e2e import kills
from tests.e2e.scenario import is_ready

VERSIONS = ("step-0", "step-1", "step-2", "step-3")
WORKERS = 2
VICTIMS = ("engine-core", "vllm-server", "sidecar", "pod", "leader", "operator", "kube-apiserver")
MODES = ("Keep", "Wait", "Abort")
STAGES = ("Paused", "Loading", "Loaded", "Proved")
_ENGINE, _SIDECAR = "engine", "sidecar"
_FROZEN_S = (5.0, 20.0)
_BY_STAGE = 0.5
"""How often a strike waits for a stage of a worker, and not for a moment."""


@dataclass(frozen=True)
class Planned:
    """One rollout and what dies in it."""

    number: int
    source: str
    target: str
    mode: str
    victim: str
    worker: int
    """The ordinal of the worker that dies, or whose stage says when."""
    stage: str = ""
    """The stage of that worker in which it is struck; else ``at`` counts."""
    at: float = 0.0
    """The moment: 0 is the patch of the spec, 1 the end of a usual rollout."""
    frozen_s: float = 0.0
    """How long the API server hangs."""

    @property
    def moment(self) -> str:
        """The moment, in a word."""
        return self.stage or f"{self.at:.2f}"


def plans(seed: int, rollouts: int, first: str = VERSIONS[0]) -> list[Planned]:
    """Return so many rollouts, each from where the one before ended; every victim comes in turn."""
    drawn = random.Random(seed)  # noqa: S311 - it has to be the same each time
    made: list[Planned] = []
    victims: list[str] = []
    for number in range(1, rollouts + 1):
        if not victims:
            victims = drawn.sample(VICTIMS, len(VICTIMS))
        source = made[-1].target if made else first
        made.append(_drawn(drawn, number, source, victims.pop()))
    return made


def _drawn(drawn: random.Random, number: int, source: str, victim: str) -> Planned:
    target = drawn.choice([version for version in VERSIONS if version != source])
    mode, worker = drawn.choice(MODES), drawn.randrange(WORKERS)
    stage, at = drawn.choice(STAGES), round(drawn.random(), 3)
    is_by_stage = drawn.random() < _BY_STAGE
    frozen_s = round(drawn.uniform(*_FROZEN_S), 1) if victim == "kube-apiserver" else 0.0
    return Planned(
        number,
        source,
        target,
        mode,
        victim,
        worker,
        stage if is_by_stage else "",
        0.0 if is_by_stage else at,
        frozen_s,
    )


@dataclass(frozen=True)
class Seen:
    """How fleet, pods and operator are, at one look."""

    fleet: dict[str, Any] = field(default_factory=dict)
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    operators: frozenset[str] = frozenset()
    """The operator's pods that are ready."""
    leader: str = ""

    @property
    def status(self) -> dict[str, Any]:
        """What the fleet's status says."""
        status: dict[str, Any] = self.fleet.get("status", {})
        return status

    def starts(self, worker: str, container: str) -> tuple[str, int]:
        """Return which pod a worker has, and how often a container of it was restarted."""
        pod = self.pods.get(worker)
        if pod is None:
            return "", 0
        status = pod["status"]
        kinds = ("initContainerStatuses", "containerStatuses")
        counts = {c["name"]: c["restartCount"] for kind in kinds for c in status.get(kind, ())}
        return pod["metadata"]["uid"], counts.get(container, 0)


def aimed(shell: Shell, planned: Planned, fleet: str, before: Seen) -> kills.Strike:
    """Find the victim; what is returned strikes it."""
    worker = f"{fleet}-{planned.worker}"
    ways: dict[str, Callable[[], kills.Strike]] = {
        "engine-core": lambda: kills.aim_at_engine_core(shell, worker),
        "vllm-server": lambda: kills.aim_at_api_server(shell, worker),
        "sidecar": lambda: kills.aim_at_sidecar(shell, worker),
        "pod": lambda: lambda: _delete(shell, worker),
        "leader": lambda: lambda: kills.delete_leader(shell, before.leader),
        "operator": lambda: lambda: kills.kill_operator(shell),
        "kube-apiserver": lambda: lambda: kills.freeze_kube_apiserver(planned.frozen_s),
    }
    return ways[planned.victim]()


def _delete(shell: Shell, worker: str) -> None:
    shell.kubectl("delete", "pod", worker, "--wait=false")


def is_replaced(planned: Planned, fleet: str, before: Seen, now: Seen) -> bool:
    """Return whether the victim's successor runs, so that what is seen is not the time before."""
    worker = f"{fleet}-{planned.worker}"
    match planned.victim:
        case "engine-core" | "vllm-server":
            return now.starts(worker, _ENGINE) != before.starts(worker, _ENGINE)
        case "sidecar":
            return now.starts(worker, _SIDECAR) != before.starts(worker, _SIDECAR)
        case "pod":
            return now.starts(worker, _ENGINE)[0] not in {"", before.starts(worker, _ENGINE)[0]}
        case "leader":
            return before.leader not in now.operators and now.leader in now.operators
        case "operator":
            return not before.operators & now.operators and now.leader in now.operators
        case _:
            return True


def looked(shell: Shell, fleet: str) -> Seen:
    """Look at everything once."""
    listed = json.loads(shell.kubectl("get", "rlf,pods", "-o", "json"))["items"]
    ours = {"rlfleet.dev/fleet": fleet}.items()
    pods = {
        one["metadata"]["name"]: one
        for one in listed
        if one["kind"] == "Pod" and ours <= one["metadata"].get("labels", {}).items()
    }
    (found,) = (one for one in listed if one["kind"] == "RLInferenceFleet")
    words = ("kubectl", "-n", stage.OPERATOR_NAMESPACE, "get", "pods,leases", "-o", "json")
    system = json.loads(shell.run(*words))["items"]
    return Seen(found, pods, _ready(system), _holder(system))


def _ready(items: list[dict[str, Any]]) -> frozenset[str]:
    pods = [one for one in items if one["kind"] == "Pod"]
    return frozenset(
        pod["metadata"]["name"]
        for pod in pods
        if is_ready(pod) and "deletionTimestamp" not in pod["metadata"]
    )


def _holder(items: list[dict[str, Any]]) -> str:
    holders = [
        str(one["spec"].get("holderIdentity") or "")
        for one in items
        if one["kind"] == "Lease" and one["metadata"]["name"] == stage.RELEASE
    ]
    return holders[0].partition("_")[0] if holders else ""
