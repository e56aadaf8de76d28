"""examples/autoscaling by KEDA and by prometheus-adapter, as their projects publish them.

Kubernetes' autoscaler asks them, they ask a real Prometheus, and that scrapes the engines.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.gitops import tools
from dev.kubernetes import apiserver
from dev.prometheus import programs
from dev.prometheus.programs import Prometheus
from dev.servers import Servers, accepts, free_ports
from rlfleet_contract import paths
from rlfleet_contract.tls import CA_KEY, CERTIFICATE_KEY, PRIVATE_KEY
from tests.certificates import Authority, mounted
from tests.hollow import HollowNode
from tests.integration.conftest import ROOT, Fleet, Operator, kubectl, until
from tests.integration.gitops import metrics_server
from tests.integration.tools.conftest import define, written

pytestmark = pytest.mark.integration
EXAMPLES = ROOT / "examples" / "autoscaling"
_READER = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: external-metrics}
rules: [{apiGroups: [external.metrics.k8s.io], resources: ["*"], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: external-metrics}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: external-metrics}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: system:anonymous}]
"""
"""The API server of these tests forwards requests without a certificate, as system:anonymous."""
_OPEN = ("--authentication-skip-lookup", "--authorization-always-allow-paths=/apis/*")


def example(name: str, namespace: str) -> dict[str, Any]:
    """Return an example for a namespace, with no delay before a step down."""
    text = (EXAMPLES / name).read_text().replace('namespace="rl"', f'namespace="{namespace}"')
    found: dict[str, Any] = yaml.safe_load(
        text.replace("stabilizationWindowSeconds: 600", "stabilizationWindowSeconds: 0")
    )
    return found


@asynccontextmanager
async def scraped(fleet: Fleet, folder: Path, port: int) -> AsyncIterator[Prometheus]:
    """Run a Prometheus that scrapes the first worker's engine, labelled as by the PodMonitor."""
    pod = (await fleet.pods())["qwen-0"]
    engines = {"engines": [f"{pod['status']['podIP']}:{paths.ENGINE_PORT}"]}
    labels = {"namespace": fleet.namespace, "fleet": fleet.name}
    with programs.running(folder, port, engines, labels) as running:
        yield running


@pytest.fixture
def scrape_port() -> int:
    (port,) = free_ports(1)
    return port


@pytest.fixture
def keda(plane: apiserver.ControlPlane, servers: Servers, namespace: str) -> Servers:
    """KEDA's operator and its metrics server, with certificates as its chart would make."""
    define(plane, (tools.KEDA.folder() / "config/crd/bases").glob("*_*.yaml"))
    made = Authority().secret("localhost", "127.0.0.1")
    mounted(servers.state / "certs", made, (CA_KEY, CERTIFICATE_KEY, PRIVATE_KEY))
    certs = f"--cert-dir={servers.state / 'certs'}"
    service, secure, *others = free_ports(5)
    known = {
        "KUBECONFIG": str(plane.kubeconfig),
        "WATCH_NAMESPACE": namespace,
        "POD_NAMESPACE": namespace,
        "KEDA_CLUSTER_OBJECT_NAMESPACE": namespace,
    }
    own = [f"--metrics-service-bind-address=127.0.0.1:{service}"]
    own += [f"--metrics-bind-address=127.0.0.1:{others[0]}"]
    own += [f"--health-probe-bind-address=127.0.0.1:{others[1]}"]
    servers.start("keda-operator", [str(tools.path("keda-operator")), certs, *own], **known)
    servers.wait(lambda: accepts(service))
    own = [f"--secure-port={secure}", f"--port={others[2]}"]
    own += [f"--metrics-service-address=localhost:{service}", *_delegated(plane)]
    servers.start("keda-adapter", [str(tools.path("keda-adapter")), certs, *own], **known)
    servers.wait(lambda: accepts(secure))
    _publish(plane, namespace, secure)
    return servers


@pytest.fixture
def adapter(
    plane: apiserver.ControlPlane, servers: Servers, namespace: str, scrape_port: int
) -> Servers:
    """prometheus-adapter with the example's rules, as its chart would write its file."""
    rules = yaml.safe_load((EXAMPLES / "prometheus-adapter.yaml").read_text())["rules"]
    config = yaml.safe_dump({"externalRules": rules["external"]})
    (secure,) = free_ports(1)
    argv = [str(tools.path("prometheus-adapter")), f"--secure-port={secure}"]
    argv += [f"--cert-dir={servers.state / 'adapter'}"]
    argv += [f"--prometheus-url=http://127.0.0.1:{scrape_port}", "--metrics-relist-interval=2s"]
    argv += [f"--config={written(servers.state, 'config.yaml', config)}", *_delegated(plane)]
    servers.start("prometheus-adapter", argv)
    servers.wait(lambda: accepts(secure))
    _publish(plane, namespace, secure)
    return servers


def _publish(plane: apiserver.ControlPlane, namespace: str, port: int) -> None:
    """Have the API server forward requests for external metrics."""
    kubectl(plane, "apply", "-f", "-", stdin=_READER)
    kubectl(plane, "apply", "-f", "-", stdin=metrics_server.objects(namespace, port))


def _delegated(plane: apiserver.ControlPlane) -> list[str]:
    kinds = ("authentication", "authorization", "lister")
    named = (f"--{kind}-kubeconfig={plane.kubeconfig}" for kind in kinds)
    return [*named, *_OPEN]


@pytest.fixture(autouse=True)
async def started(operator: Operator, node: HollowNode, fleet: Fleet) -> None:
    await fleet.create(weightVersion="step-1", replicas=1, rollout={"maxUnavailable": 1})
    await fleet.synced()


async def _follows(
    fleet: Fleet, node: HollowNode, plane: apiserver.ControlPlane, *expected: int
) -> None:
    """The fleet gets a worker per eight waiting requests, and each serves what is declared."""

    async def described() -> str:
        words = ("describe", "hpa,scaledobject")
        return kubectl(plane, f"-n={fleet.namespace}", *words, check=False).stdout

    async def wants(replicas: int) -> bool:
        return bool((await fleet.get())["spec"]["replicas"] == replicas)

    for replicas in expected:
        node.worker("qwen-0").engine.waiting = 8 * replicas
        await until(partial(wants, replicas), describe=described)
        status = await fleet.synced()
        assert status["proved"] == f"{replicas}/{replicas}"
        assert status["serving"] == "step-1"


@pytest.mark.usefixtures("adapter")
async def test_a_fleet_follows_its_waiting_requests_by_prometheus_adapter(
    plane: apiserver.ControlPlane,
    node: HollowNode,
    fleet: Fleet,
    tmp_path: Path,
    scrape_port: int,
) -> None:
    scaler = example("hpa.yaml", fleet.namespace)
    async with scraped(fleet, tmp_path / "prometheus", scrape_port):
        kubectl(plane, f"-n={fleet.namespace}", "apply", "-f", "-", stdin=yaml.safe_dump(scaler))
        await _follows(fleet, node, plane, 3, 2)


@pytest.mark.usefixtures("keda")
async def test_a_fleet_follows_its_waiting_requests_by_keda(
    plane: apiserver.ControlPlane,
    node: HollowNode,
    fleet: Fleet,
    tmp_path: Path,
    scrape_port: int,
) -> None:
    scaler = example("keda.yaml", fleet.namespace)
    (trigger,) = scaler["spec"]["triggers"]
    trigger["metadata"]["serverAddress"] = f"http://127.0.0.1:{scrape_port}"
    scaler["spec"]["pollingInterval"] = 2
    async with scraped(fleet, tmp_path / "prometheus", scrape_port):
        kubectl(plane, f"-n={fleet.namespace}", "apply", "-f", "-", stdin=yaml.safe_dump(scaler))
        await _follows(fleet, node, plane, 2, 3)

    # Prometheus is gone: the workers that there are stay, more than the example's fallback has.
    assert scaler["spec"]["fallback"]["replicas"] == 2
    await until(lambda: _is_without_data(plane, fleet), describe=fleet.describe)
    await asyncio.sleep(20)
    assert (await fleet.get())["spec"]["replicas"] == 3


async def _is_without_data(plane: apiserver.ControlPlane, fleet: Fleet) -> bool:
    words = ("get", "scaledobject", "qwen", "-o", "yaml")
    found = yaml.safe_load(kubectl(plane, f"-n={fleet.namespace}", *words).stdout)
    conditions = {one["type"]: one["status"] for one in found["status"]["conditions"]}
    return bool(conditions["Fallback"] == "True")
