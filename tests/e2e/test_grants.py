"""What the installed operator asked of a real cluster's API server, and what its roles grant it.

Last of all tests: each request that the operator sent in those before counts as well. What an
earlier installation sent while it was uninstalled does not: its roles go before its pods end, and
each of these tries to release the Lease.
tests/integration/test_grants.py compares the same for the operator as a process.
"""

import json
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
import yaml

from dev import target
from dev.demo import stage
from dev.images import names
from dev.kubernetes import audit
from dev.node import layout
from dev.shell import Shell
from tests.e2e.kills import kill_operator
from tests.e2e.scenario import POD_S, Fleet, until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        target.is_existing(), reason="only the cluster of dev.node keeps an audit log"
    ),
]

OPERATOR = f"system:serviceaccount:{stage.OPERATOR_NAMESPACE}:{stage.RELEASE}"
LOG = audit.log_in(layout.state())
NOWHERE = {"rlfleet.dev/no-such-node": "true"}


def roles(shell: Shell) -> list[dict[str, Any]]:
    """Return the roles that the chart has installed for the operator."""
    near = ("kubectl", "-n", stage.OPERATOR_NAMESPACE, "get", "-o", "json")
    names = (("clusterrole", stage.RELEASE), ("role", f"{stage.RELEASE}-leader"))
    return [json.loads(shell.run(*near, kind, name)) for kind, name in names]


def granted(shell: Shell) -> set[audit.Grant]:
    """Return what these roles grant."""
    return audit.granted(rule for role in roles(shell) for rule in role["rules"])


def installed_at(shell: Shell) -> datetime:
    """Return when the newest of these roles was made."""
    found = (role["metadata"]["creationTimestamp"] for role in roles(shell))
    return max(map(datetime.fromisoformat, found))


def nowhere(shell: Shell, name: str) -> dict[str, Any]:
    """Return a pod that Pod Security admits, and that no node runs."""
    pod: dict[str, Any] = yaml.safe_load((stage.DEMO / "client.yaml").read_text())
    container = {
        "name": "other",
        "image": names.recorded()["worker"],
        "securityContext": pod["spec"]["containers"][0]["securityContext"],
    }
    spec = {"nodeSelector": NOWHERE, "containers": [container]}
    spec["securityContext"] = pod["spec"]["securityContext"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def begun() -> audit.Position | None:
    """Where the log ends before this test has the operator do anything."""
    return audit.position(LOG)


@pytest.fixture
def waiting(shell: Shell, begun: audit.Position | None) -> Iterator[Fleet]:
    """A fleet of two workers whose pods no node runs: it costs no engine."""
    made: dict[str, Any] = yaml.safe_load((stage.DEMO / "fleet.yaml").read_text())
    made["metadata"]["name"] = "waiting"
    made["spec"]["template"] = {"spec": {"nodeSelector": NOWHERE}}
    shell.kubectl("apply", "-f", "-", stdin=json.dumps(made))
    yield Fleet(shell, "waiting")
    shell.kubectl("delete", "rlf/waiting", "pod/waiting-2", "--ignore-not-found")


def is_refused(status: dict[str, Any]) -> bool:
    return any(
        (c["type"], c["reason"]) == ("Stalled", "ObjectRefused") for c in status["conditions"]
    )


def test_the_operator_uses_all_that_it_is_granted_and_is_denied_nothing(
    fleet: Fleet, shell: Shell, begun: audit.Position | None, waiting: Fleet
) -> None:
    epoch = fleet.status()["epoch"]
    # As at the first installation: it lists, watches, and makes its Lease.
    kill_operator(shell)
    near = ("kubectl", "-n", stage.OPERATOR_NAMESPACE)
    shell.run(*near, "delete", "lease", stage.RELEASE, "--ignore-not-found")
    fleet.wait(lambda status: status["epoch"] > epoch, POD_S, "another driver")
    until(lambda: len(waiting.pods()) == 2, POD_S, "the pods of a fleet that waits for a node")

    # Objects that others have changed are restored at the next change of the spec.
    port = '{"spec": {"ports": [{"name": "http", "port": 8000, "targetPort": 8001}]}}'
    shell.kubectl("patch", "service", waiting.name, f"--patch={port}")
    shell.kubectl("create", "-f", "-", stdin=json.dumps(nowhere(shell, "waiting-2")))
    waiting.patch(replicas=3, rollout={"maxUnavailable": 2})
    waiting.wait(is_refused, POD_S, "ObjectRefused")
    waiting.patch(replicas=1)
    # Pods that have had their version and readiness for long get others.
    fleet.patch(staleness={"minVersion": "step-1", "onViolation": "Unready"})
    fleet.wait(lambda status: status["readyReplicas"] == 0, 60, "no worker ready")
    fleet.declare("step-1")
    fleet.wait_synced()

    def unused() -> list[audit.Grant]:
        return audit.unused(granted(shell), audit.asked(LOG, OPERATOR, begun))

    # Events are posted, and requests logged, a moment later.
    end = time.monotonic() + 60
    while unused() and time.monotonic() < end:
        time.sleep(1)
    assert unused() == []
    path = "jsonpath={.spec.ports[0].targetPort}"
    assert shell.kubectl("get", "service", waiting.name, "-o", path) == "http"
    made = installed_at(shell)
    assert audit.denied(one for one in audit.asked(LOG, OPERATOR) if one.at > made) == set()
