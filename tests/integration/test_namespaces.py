"""An operator that may see some namespaces alone, by the roles of the chart."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.kubernetes import apiserver
from rlfleet_operator.kube.client import KubeClient
from tests.hollow import HollowNode
from tests.integration.chart.rendering import rendered
from tests.integration.conftest import Fleet, Operator, kubectl

pytestmark = pytest.mark.integration


@pytest.fixture
def other(namespace: str, plane: apiserver.ControlPlane) -> Iterator[str]:
    """Another namespace, which comes and goes."""
    name = f"{namespace}-other"
    yield name
    kubectl(plane, "delete", "namespace", name, "--wait=false", "--ignore-not-found")


@pytest.fixture
def roles(namespace: str, other: str) -> str:
    """What the chart lets an operator of these two namespaces do."""
    words = ("--set", f"namespaces={{{namespace},{other}}}", "-s", "templates/rbac.yaml")
    return rendered("--namespace", namespace, *words)


@pytest.fixture
def bound(
    plane: apiserver.ControlPlane, namespace: str, other: str, roles: str, tmp_path: Path
) -> Iterator[Operator]:
    """An operator by those roles; it is started by the test."""
    kubectl(plane, "create", "namespace", other)
    kubectl(plane, "apply", "-f", "-", stdin=roles)
    token = kubectl(plane, "-n", namespace, "create", "token", "rlfleet").stdout.strip()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "here",
                "cluster": {"server": plane.url, "certificate-authority": str(plane.ca)},
            }
        ],
        "users": [{"name": "operator", "user": {"token": token}}],
        "contexts": [{"name": "it", "context": {"cluster": "here", "user": "operator"}}],
        "current-context": "it",
    }
    path = tmp_path / "operator.kubeconfig"
    path.write_text(json.dumps(config))
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = str(held.getsockname()[1])
    own = Operator(
        plane,
        tmp_path / "operator.log",
        namespace,
        KUBECONFIG=str(path),
        RLFLEET_NAMESPACES=f"{namespace},{other}",
        RLFLEET_FLEETS_PORT=port,
    )
    yield own
    own.stop()


async def test_a_namespace_that_was_deleted_keeps_no_other_from_being_driven(
    plane: apiserver.ControlPlane,
    bound: Operator,
    node: HollowNode,
    kube: KubeClient,
    fleet: Fleet,
    other: str,
    roles: str,
) -> None:
    kubectl(plane, "delete", "namespace", other, "--timeout=30s")
    bound.start()

    await fleet.create(weightVersion="step-1", replicas=1)
    await fleet.synced()

    # It comes back, and with it the role: the operator needs no restart.
    kubectl(plane, "create", "namespace", other)
    kubectl(plane, "apply", "-f", "-", stdin=roles)
    there = Fleet(kube, other)
    await there.create(replicas=0)
    await there.synced()
    assert not await bound.has_ended()
