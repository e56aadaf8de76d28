"""An operator that was there before the definition of its resource."""

import asyncio
from pathlib import Path

import pytest
from kubernetes.aio import client, config

from dev import steps
from dev.kubernetes import apiserver
from rlfleet_operator.kube.client import KubeClient
from tests.integration.conftest import CONTROLLERS, ROOT, Fleet, Operator, grant, kubectl

pytestmark = pytest.mark.integration
SETTLED_S = 8.0
"""In which an operator has begun to watch whatever is there to be watched."""


async def test_fleets_are_driven_once_they_are_defined_without_the_fleets_address_too(
    tmp_path: Path,
) -> None:
    steps.run(apiserver.ready_steps())
    with apiserver.running(controllers=CONTROLLERS) as plane:
        grant(plane)
        operator = Operator(plane, tmp_path / "operator.log", "default", RLFLEET_FLEETS_PORT="0")
        operator.start()
        try:
            await asyncio.sleep(SETTLED_S)
            kubectl(plane, "apply", "-f", str(ROOT / "crds"))
            apiserver.await_definition(plane)
            await _is_driven(plane)
        finally:
            operator.stop()


async def _is_driven(plane: apiserver.ControlPlane) -> None:
    settings = client.Configuration()
    await config.load_kube_config(str(plane.kubeconfig), client_configuration=settings)
    kube = KubeClient(client.ApiClient(settings))
    fleet = Fleet(kube, "default")
    try:
        await fleet.create(replicas=0)
        await fleet.synced(timeout_s=30)
    finally:
        await kube.close()
