"""What other tools add to a worker's pod, and that holds it up."""

from typing import Any

import pytest

from rlfleet_kubectl.core.doctor.finding import Severity
from tests.unit.rlfleet_kubectl.clusters import Change, Cluster
from tests.unit.rlfleet_kubectl.defects import Defect, demand_found, demand_nothing

W = Severity.WARNING
GATE = "target-health.elbv2.k8s.aws/k8s-qwen"
LONG_AGO, JUST_NOW = "2026-11-25T02:47:00Z", "2026-11-25T02:52:15Z"


def running(name: str, since: str, *, init: dict[str, Any] | None = None, **state: Any) -> Change:
    """Have another tool's container run."""

    def change(cluster: Cluster) -> None:
        one = {"name": name, "state": {"running": {"startedAt": since}}, "ready": False} | state
        if init is None:
            cluster.pod["status"]["containerStatuses"].insert(0, one)
        else:
            cluster.pod["spec"]["initContainers"].insert(0, {"name": name} | init)
            cluster.pod["status"]["initContainerStatuses"].insert(0, one)

    return change


def gated(since: str, **own: str) -> Change:
    """Have a load balancer's gate keep a pod from traffic."""

    def change(cluster: Cluster) -> None:
        kinds = ["rlfleet.dev/WeightsReady", GATE]
        cluster.pod["spec"]["readinessGates"] = [{"conditionType": kind} for kind in kinds]
        states = {"ContainersReady": "True", kinds[0]: "True", "Ready": "False"} | own
        cluster.pod["status"]["conditions"] = [
            {"type": kind, "status": state, "lastTransitionTime": since, "message": f"of {kind}"}
            for kind, state in states.items()
        ]

    return change


SHOWN: list[Defect] = [
    (
        "an init container",
        running("vault-init", LONG_AGO, init={}, started=True),
        W,
        "InitContainerRuns",
        "has run for 5m: the engine starts after it",
        "kubectl -n plugin logs qwen-0 -c vault-init",
    ),
    (
        "a native sidecar that does not start",
        running("proxy", LONG_AGO, init={"restartPolicy": "Always"}, started=False),
        W,
        "InitContainerRuns",
        "the engine starts after it",
        "logs qwen-0 -c proxy",
    ),
    (
        "a native sidecar that is not ready",
        running("proxy", LONG_AGO, init={"restartPolicy": "Always"}, started=True),
        W,
        "ContainerNotReady",
        "not ready, started 5m ago",
        "logs qwen-0 -c proxy",
    ),
    (
        "a container that is not ready",
        running("proxy", LONG_AGO),
        W,
        "ContainerNotReady",
        "not ready, started 5m ago",
        "logs qwen-0 -c proxy",
    ),
    (
        "a gate that is false",
        gated(LONG_AGO, **{GATE: "False"}),
        W,
        "GateNotTrue",
        f"readiness gate {GATE} is not true: of {GATE}",
        "such as a load balancer's",
    ),
    (
        "a gate that is not set",
        gated(LONG_AGO),
        W,
        "GateNotTrue",
        "its controller has not set it",
        f"the controller that sets {GATE}",
    ),
]
HARMLESS: list[tuple[str, Change]] = [
    ("an init container that has begun", running("vault-init", JUST_NOW, init={})),
    ("a container that has begun", running("proxy", JUST_NOW)),
    ("a container that is ready", running("proxy", LONG_AGO, ready=True)),
    ("a gate that turned false just now", gated(JUST_NOW, **{GATE: "False"})),
    ("a gate before the containers", gated(LONG_AGO, ContainersReady="False")),
    ("a gate before the proof", gated(LONG_AGO, **{"rlfleet.dev/WeightsReady": "False"})),
]


@pytest.mark.parametrize("defect", SHOWN, ids=[one[0] for one in SHOWN])
def test_what_another_tool_holds_up_is_found(defect: Defect) -> None:
    demand_found(defect)


@pytest.mark.parametrize("change", [one[1] for one in HARMLESS], ids=[one[0] for one in HARMLESS])
def test_what_only_begins_is_not_shown(change: Change) -> None:
    demand_nothing(change)
