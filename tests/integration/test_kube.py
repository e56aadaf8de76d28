"""The connection to the API server, as only a real TLS server shows it."""

import asyncio
import gc
from dataclasses import replace
from typing import Any

import pytest
from kubernetes.aio import client, config

from dev.kubernetes import apiserver
from rlfleet_operator.core.manifests import owned_objects as around
from rlfleet_operator.core.manifests import pod_manifest
from rlfleet_operator.core.model.actions import CreatePod, DeletePod, MarkPod
from rlfleet_operator.core.model.fleet import fleet_from
from rlfleet_operator.errors import Missing, NotLeading, Refused
from rlfleet_operator.kube import apply
from rlfleet_operator.kube.client import METADATA_OF_ONE, KubeClient, fleet_path, object_path
from tests import fleets

pytestmark = pytest.mark.integration
QWEN: dict[str, Any] = {
    "apiVersion": "rlfleet.dev/v1alpha1",
    "kind": "RLInferenceFleet",
    "metadata": {"name": "qwen"},
    "spec": {"replicas": 1, "model": {"name": "qwen", "path": "/models/qwen"}},
}
DEFAULTS = pod_manifest.Defaults("worker:1")


def test_a_watch_that_is_left_has_hung_up_before_the_loop_ends(
    plane: apiserver.ControlPlane,
) -> None:
    async def leave() -> None:
        settings = client.Configuration()
        await config.load_kube_config(str(plane.kubeconfig), client_configuration=settings)
        kube = KubeClient(client.ApiClient(settings))
        listed = await kube.get("/api/v1/namespaces")
        # Of an object that is not there, so that nothing comes.
        watch = kube.watch(
            "/api/v1/namespaces",
            listed["metadata"]["resourceVersion"],
            fieldSelector="metadata.name=nobody",
        )
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await anext(watch)
        await kube.close()

    # What is open when its loop closes is a ResourceWarning, and those are errors here.
    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave())
    loop.close()
    gc.collect()


async def test_a_client_without_write_access_may_still_read(
    kube: KubeClient, namespace: str
) -> None:
    def refuse() -> None:
        raise NotLeading("over")

    refused = kube.under(refuse)
    path = object_path(namespace, "configmaps")

    assert (await refused.get(path))["kind"] == "ConfigMapList"
    for write in (
        refused.create(path, {"metadata": {"name": "made"}}),
        refused.patch(f"{path}/kube-root-ca.crt", {"metadata": {"labels": {"a": "b"}}}),
        refused.replace(f"{path}/kube-root-ca.crt", {"metadata": {"name": "kube-root-ca.crt"}}),
        refused.delete(f"{path}/kube-root-ca.crt", "no-such-uid"),
    ):
        with pytest.raises(NotLeading):
            await write


OWNED = {
    "services": around.services(fleets.fleet())[1],
    "secrets": around.secret(fleets.fleet(), "the-token"),
    "poddisruptionbudgets": around.disruption_budget(fleets.fleet()),
    "events": {"metadata": {"generateName": "qwen."}, "involvedObject": {"name": "qwen"}},
}


@pytest.mark.parametrize("kind", OWNED)
async def test_no_unknown_field_of_a_created_object_is_dropped(
    kube: KubeClient, namespace: str, kind: str
) -> None:
    """Without Strict the API server would create it, with a warning that no user sees."""
    metadata = OWNED[kind]["metadata"] | {"namespace": namespace, "ownerReferences": []}
    event = {"involvedObject": {"name": "qwen", "namespace": namespace}} if kind == "events" else {}
    body = OWNED[kind] | {"metadata": metadata} | event

    with pytest.raises(Refused, match='unknown field "misspelled"'):
        await kube.create(object_path(namespace, kind), body | {"misspelled": True})

    await kube.create(object_path(namespace, kind), body)


async def test_a_write_takes_effect_though_its_answer_has_only_metadata(
    kube: KubeClient, namespace: str
) -> None:
    path, body = object_path(namespace, "configmaps"), {"metadata": {"name": "made"}}

    made = await kube.create(path, body, accept=METADATA_OF_ONE)
    patched = await kube.patch(f"{path}/made", {"data": {"a": "b"}}, accept=METADATA_OF_ONE)

    assert made["kind"] == patched["kind"] == "PartialObjectMetadata"
    assert (await kube.get(f"{path}/made"))["data"] == {"a": "b"}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"runtimeClasName": "gvisor"}, "spec.runtimeClasName"),
        ({"containers": [{"name": "engine", "envs": []}]}, "spec.containers[0].envs"),
    ],
    ids=["of the pod", "of a container"],
)
async def test_a_field_of_a_template_that_kubernetes_does_not_know_is_refused_by_name(
    kube: KubeClient, namespace: str, spec: dict[str, Any], field: str
) -> None:
    """It would be dropped without a word otherwise."""
    manifest = {
        "apiVersion": "rlfleet.dev/v1alpha1",
        "kind": "RLInferenceFleet",
        "metadata": {"name": "typo"},
        "spec": {
            "replicas": 0,
            "model": {"name": "qwen", "path": "/models/qwen"},
            "template": {"spec": spec},
        },
    }
    fleet = fleet_from(await kube.create(fleet_path(namespace), manifest))

    (error,) = await apply.pods(kube, fleet, [CreatePod(0)], DEFAULTS)

    assert isinstance(error, Refused)
    assert f'unknown field "{field}"' in str(error)
    await kube.delete(fleet_path(namespace, "typo"), fleet.uid)


@pytest.mark.parametrize(
    ("template", "refusal"),
    [
        ({}, None),
        ({"terminationGracePeriodSeconds": 31}, None),
        ({"tolerations": [{"operator": "Sometimes"}]}, "tolerations[0].operator"),
        ({"priorityClassName": "absent"}, "no PriorityClass with name absent"),
    ],
)
async def test_a_pod_stays_while_the_api_server_refuses_its_successor(
    kube: KubeClient, namespace: str, template: dict[str, Any], refusal: str | None
) -> None:
    made = await kube.create(fleet_path(namespace), QWEN)
    assert await apply.pods(kube, fleet_from(made), [CreatePod(0)], DEFAULTS) == []
    path = object_path(namespace, "pods", "qwen-0")
    uid = (await kube.get(path))["metadata"]["uid"]
    made["spec"]["template"] = {"spec": template}
    changed = fleet_from(made)

    errors = await apply.pods(kube, changed, [DeletePod("qwen-0", uid, "outdated", 0)], DEFAULTS)

    try:
        if refusal is None:
            assert errors == []
            with pytest.raises(Missing):
                await kube.get(path)
        else:
            (error,) = errors
            assert isinstance(error, Refused)
            assert refusal in str(error)
            assert (await kube.get(path))["metadata"]["uid"] == uid
            assert (
                await apply.pods(kube, changed, [DeletePod("qwen-0", uid, "gone")], DEFAULTS) == []
            )
    finally:
        await kube.delete(fleet_path(namespace, "qwen"), changed.uid)


async def test_a_pod_of_the_same_name_gets_no_mark_of_its_predecessor(
    kube: KubeClient, namespace: str
) -> None:
    fleet = fleet_from(await kube.create(fleet_path(namespace), QWEN))
    path = object_path(namespace, "pods", "qwen-0")
    try:
        assert await apply.pods(kube, fleet, [CreatePod(0)], DEFAULTS) == []
        fresh = await kube.get(path)
        mark = MarkPod("qwen-0", "of-its-predecessor", ready=True, version="step-1", message="")

        await apply.pods(kube, fleet, [mark], DEFAULTS)

        assert await kube.get(path) == fresh
        await apply.pods(kube, fleet, [replace(mark, uid=fresh["metadata"]["uid"])], DEFAULTS)
        assert (await kube.get(path))["status"]["conditions"][0]["status"] == "True"
        await apply.pods(
            kube, fleet, [DeletePod("qwen-0", fresh["metadata"]["uid"], "gone")], DEFAULTS
        )
    finally:
        await kube.delete(fleet_path(namespace, "qwen"), fleet.uid)
