"""What other tools write into a fleet's objects: owners, selectors."""

import json

import pytest

from dev.kubernetes import apiserver
from rlfleet_operator.kube.client import object_path
from tests.hollow import HollowNode
from tests.integration.conftest import Fleet, Operator, kubectl, until

pytestmark = pytest.mark.integration


async def test_a_pod_with_another_owner_before_the_fleet_stays_the_fleet_s(
    plane: apiserver.ControlPlane, operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await fleet.create(weightVersion="step-1")
    await fleet.synced()
    words = ("-n", fleet.namespace)
    kubectl(plane, *words, "create", "configmap", "owner")
    uid = kubectl(plane, *words, "get", "cm", "owner", "-o", "jsonpath={.metadata.uid}").stdout
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    patch = [{"op": "add", "path": "/metadata/ownerReferences/0", "value": owner}]

    kubectl(plane, *words, "patch", "pod", "qwen-0", "--type=json", "-p", json.dumps(patch))
    await fleet.patch(weightVersion="step-2")
    status = await fleet.synced(20)

    assert status["proved"] == "2/2"


async def test_a_selector_that_another_tool_narrowed_is_restored(
    plane: apiserver.ControlPlane, operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await fleet.create(weightVersion="step-1")
    await fleet.synced()
    patch = json.dumps({"spec": {"selector": {"pod-template-hash": "1"}}})
    kubectl(plane, "-n", fleet.namespace, "patch", "svc", "qwen", "-p", patch)

    await fleet.patch(weightVersion="step-2")
    await fleet.synced()

    async def is_restored() -> bool:
        found = await fleet.kube.get(object_path(fleet.namespace, "services", "qwen"))
        return bool(found["spec"]["selector"] == {"rlfleet.dev/fleet": "qwen"})

    await until(is_restored, 10)


async def test_a_pod_without_its_owner_costs_no_other_worker(
    plane: apiserver.ControlPlane, operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await fleet.create(weightVersion="step-1")
    await fleet.synced()
    before = await fleet.pods()
    words = ("-n", fleet.namespace)
    patch = json.dumps([{"op": "remove", "path": "/metadata/ownerReferences"}])

    kubectl(plane, *words, "patch", "pod", "qwen-0", "--type=json", "-p", patch)
    stalled = await fleet.stalled(30)
    _, _, command = stalled["message"].partition("kubectl ")
    kubectl(plane, *command.split())
    await fleet.synced()
    after = await fleet.pods()

    assert stalled["reason"] == "ObjectRefused"
    assert after["qwen-0"]["metadata"]["uid"] != before["qwen-0"]["metadata"]["uid"]
    assert after["qwen-1"]["metadata"]["uid"] == before["qwen-1"]["metadata"]["uid"]
