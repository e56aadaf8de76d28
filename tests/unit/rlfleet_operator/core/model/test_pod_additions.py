"""Pods in which other tools, as a mesh or Vault, wait: recorded from a kubelet."""

from typing import Any

import pytest

from rlfleet_operator.core.model.pod_additions import awaited_init, unready
from rlfleet_operator.core.model.world import READINESS_GATE

BALANCER = "target-health.elbv2.k8s.aws/k8s-qwen"
DONE = {"state": {"terminated": {"exitCode": 0}}, "ready": True, "started": False}
RUNS = {"state": {"running": {}}, "ready": False, "started": True}
STARTS = {"state": {"running": {}}, "ready": False, "started": False}
UP = {"state": {"running": {}}, "ready": True, "started": True}
WAITS = {"state": {"waiting": {"reason": "PodInitializing"}}, "ready": False, "started": False}


def pod(inits: dict[str, Any], containers: dict[str, Any] | None = None, **gates: str) -> Any:
    """Return a pod whose init containers in capitals are native sidecars."""
    return {
        "spec": {
            "initContainers": [
                {"name": name.lower()} | ({"restartPolicy": "Always"} if name.isupper() else {})
                for name in inits
            ],
            "readinessGates": [{"conditionType": READINESS_GATE}, {"conditionType": BALANCER}],
        },
        "status": {
            "initContainerStatuses": [{"name": n.lower(), **state} for n, state in inits.items()],
            "containerStatuses": [{"name": n, **state} for n, state in (containers or {}).items()],
            "conditions": [{"type": BALANCER, "status": gates.get("balancer", "True")}],
        },
    }


@pytest.mark.parametrize(
    ("inits", "expected"),
    [
        ({"check": RUNS, "SIDECAR": WAITS}, "check"),
        ({"check": DONE, "SIDECAR": UP, "vault": RUNS}, "vault"),
        ({"PROXY": STARTS, "SIDECAR": WAITS}, "proxy"),
        ({"PROXY": RUNS, "SIDECAR": UP, "vault": DONE}, None),
        ({"PROXY": UP, "SIDECAR": STARTS, "vault": WAITS}, None),
        ({"check": WAITS}, None),
        ({}, None),
    ],
    ids=[
        "before the sidecar",
        "after the sidecar",
        "a native sidecar that has not started",
        "a native sidecar that has started",
        "the worker's own sidecar",
        "none runs yet",
        "none",
    ],
)
def test_the_init_container_that_the_engine_waits_for(
    inits: dict[str, Any], expected: str | None
) -> None:
    assert awaited_init(pod(inits)) == expected


def test_a_pod_without_a_status_waits_for_none() -> None:
    assert awaited_init({}) is None
    assert unready({}) is None


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (pod({"SIDECAR": UP}, {"proxy": RUNS, "engine": UP}), "container proxy not ready"),
        (pod({"PROXY": RUNS, "SIDECAR": UP}, {"engine": UP}), "container proxy not ready"),
        (
            pod({"SIDECAR": UP}, {"engine": UP}, balancer="False"),
            f"readiness gate {BALANCER} not true",
        ),
        (pod({"check": DONE, "SIDECAR": UP}, {"engine": UP}), None),
    ],
    ids=["a container", "a native sidecar", "a gate", "all are ready"],
)
def test_what_keeps_a_pod_from_ready(found: Any, expected: str | None) -> None:
    assert unready(found) == expected
