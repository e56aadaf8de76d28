"""A fleet that changes to HTTPS, and a trainer of the fleet API that checks its certificate."""

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dev.kubernetes import apiserver
from rlfleet.fleet import FleetClient, FleetState, FleetUnreachableError
from rlfleet_contract.tls import CA_KEY
from rlfleet_operator.core.manifests.sidecar_tls import server_name
from rlfleet_operator.kube.client import KubeClient, object_path
from tests.certificates import Authority, mounted
from tests.hollow import HollowNode
from tests.integration.conftest import Fleet, until
from tests.integration.trainers import Replica, Trainer

pytestmark = pytest.mark.integration

SECRET = "qwen-tls"


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def own(authority: Authority, tmp_path: Path) -> Path:
    """The operator's certificate."""
    return mounted(tmp_path / "operator", authority.secret("127.0.0.1"))


@pytest.fixture
async def operator(
    plane: apiserver.ControlPlane, tmp_path: Path, namespace: str, own: Path
) -> AsyncIterator[Replica]:
    made = Replica(plane, tmp_path / "operator.log", namespace, own)
    made.start()
    await until(made.is_listening)
    yield made
    made.stop()


async def test_a_fleet_changes_to_https_and_serves_the_next_version(
    operator: Replica,
    kube: KubeClient,
    node: HollowNode,
    fleet: Fleet,
    authority: Authority,
    own: Path,
    tmp_path: Path,
) -> None:
    await fleet.create(weightVersion="step-1")
    await fleet.synced()

    name = server_name(fleet.name, fleet.namespace)
    data = authority.secret(name)
    folder = mounted(tmp_path / "mounted", data)
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "data": encoded}
    await kube.create(object_path(fleet.namespace, "secrets"), body)
    node.choose = lambda _: {"tls_dir": folder, "tls_name": name}
    await fleet.patch(sidecar={"tlsSecret": SECRET}, weightVersion="step-2")
    await fleet.synced()

    async def are_secure() -> bool:
        at = [one.worker.admin_url for one in node.pods.values()]
        return len(at) == 2 and all(url.startswith("https://") for url in at)

    await until(are_secure, describe=fleet.describe)
    await fleet.synced()
    status = await fleet.status()
    assert status["serving"] == "step-2"
    assert {worker["phase"] for worker in status["workers"]} == {"Serving"}

    token = await Trainer(fleet).token()
    url = f"{operator.url}/fleets/{fleet.namespace}/{fleet.name}"
    state = await asyncio.to_thread(asked, url, token, own / CA_KEY)
    assert (state.ready, state.applied_version) == (True, "step-2")
    with pytest.raises(FleetUnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
        await asyncio.to_thread(asked, url, token, None)


def asked(url: str, token: str, ca: Path | None) -> FleetState:
    with FleetClient(url, token, ca) as client:
        return client.state(timeout_s=20)
