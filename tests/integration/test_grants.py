"""The chart grants the operator exactly what it uses.

After each integration test its namespace's fixture checks that no request was denied.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.kubernetes import apiserver, audit
from dev.kubernetes.audit import AskedRequest, Grant
from rlfleet_operator.kube.client import KubeClient, object_path
from tests.hollow import HollowNode
from tests.integration.chart.rendering import rendered
from tests.integration.conftest import OPERATOR, Fleet, kubectl, operator_kubeconfig, until
from tests.integration.trainers import Replica, Trainer

pytestmark = pytest.mark.integration


def rules() -> list[dict[str, Any]]:
    """Return every rule of the operator's roles."""
    made = yaml.safe_load_all(rendered("-s", "templates/rbac.yaml"))
    return [rule for one in made if one for rule in one.get("rules") or ()]


class Log:
    """What the operators of one namespace have asked since this was made."""

    def __init__(self, plane: apiserver.ControlPlane, namespace: str) -> None:
        self._path, self._namespace = audit.log_in(plane.logs), namespace
        self._begun = audit.position(self._path)

    def asked(self) -> set[AskedRequest]:
        found = audit.asked(self._path, OPERATOR, self._begun)
        return {one for one in found if one.namespace == self._namespace}

    def unused(self) -> list[Grant]:
        return audit.unused(audit.granted(rules()), self.asked())


@pytest.fixture
def log(plane: apiserver.ControlPlane, namespace: str) -> Log:
    return Log(plane, namespace)


@pytest.fixture
def replica(
    plane: apiserver.ControlPlane,
    tmp_path: Path,
    namespace: str,
    log: Log,  # First, so that what it asks at its start counts too.
) -> Iterator[Replica]:
    own = Replica(plane, tmp_path / "operator.log", namespace)
    own.start()
    yield own
    own.stop()


async def test_the_operator_is_granted_nothing_that_it_does_not_use(
    plane: apiserver.ControlPlane,
    log: Log,
    replica: Replica,
    node: HollowNode,
    kube: KubeClient,
    fleet: Fleet,
) -> None:
    where = ("-n", fleet.namespace)
    await fleet.create(weightVersion="step-1")
    await fleet.synced()
    # Objects that others have changed are restored at the next change of the spec.
    port = '{"spec": {"ports": [{"name": "http", "port": 8000, "targetPort": 8001}]}}'
    kubectl(plane, *where, "patch", "service", "qwen", f"--patch={port}")
    kubectl(plane, *where, "run", "qwen-2", "--image=other")
    await fleet.patch(replicas=3, rollout={"maxUnavailable": 2})
    assert (await fleet.stalled())["reason"] == "ObjectRefused"
    kubectl(plane, *where, "delete", "pod", "qwen-2", "--now")
    await fleet.patch(replicas=1, weightVersion=None)
    await until(replica.is_listening)
    paused = await Trainer(fleet).asks(replica, "POST", "pause", json={"mode": "keep"})
    assert paused.status == 200

    async def is_all_used() -> bool:
        return not log.unused()

    async def what_is_not() -> str:
        return str(log.unused())

    await until(is_all_used, describe=what_is_not)
    service = await kube.get(object_path(fleet.namespace, "services", "qwen"))
    assert service["spec"]["ports"][0]["targetPort"] == "http"


def test_a_grant_that_is_missing_is_seen_as_denied(plane: apiserver.ControlPlane) -> None:
    """The checks above must be able to fail."""
    log, config = Log(plane, "default"), f"--kubeconfig={operator_kubeconfig(plane)}"

    denied = kubectl(plane, "-n", "default", "get", "configmaps", config, check=False)

    assert "Forbidden" in denied.stderr
    (found,) = audit.denied(log.asked())
    assert (found.resource, found.verb) == ("configmaps", "list")
    assert Grant("", "configmaps", "list") not in audit.granted(rules())
