"""The connection to the API server, where only a real TLS server tells."""

import asyncio
import gc

import pytest
from kubernetes.aio import client, config

from dev import apiserver
from rlfleet_operator.adapters.kube import Kube, core_path
from rlfleet_operator.errors import NotLeading

pytestmark = pytest.mark.integration


def test_a_watch_that_is_left_has_hung_up_before_the_loop_ends(
    plane: apiserver.ControlPlane,
) -> None:
    async def leave() -> None:
        settings = client.Configuration()
        await config.load_kube_config(str(plane.kubeconfig), client_configuration=settings)
        kube = Kube(client.ApiClient(settings))
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


async def test_who_may_not_write_may_still_read(kube: Kube, namespace: str) -> None:
    def refuse() -> None:
        raise NotLeading("over")

    refused = kube.under(refuse)
    path = core_path(namespace, "configmaps")

    assert (await refused.get(path))["kind"] == "ConfigMapList"
    for write in (
        refused.create(path, {"metadata": {"name": "made"}}),
        refused.patch(f"{path}/kube-root-ca.crt", {"metadata": {"labels": {"a": "b"}}}),
        refused.replace(f"{path}/kube-root-ca.crt", {"metadata": {"name": "kube-root-ca.crt"}}),
        refused.delete(f"{path}/kube-root-ca.crt", "no-such-uid"),
    ):
        with pytest.raises(NotLeading):
            await write
