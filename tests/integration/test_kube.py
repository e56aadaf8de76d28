"""The connection to the API server, where only a real TLS server tells."""

import asyncio
import gc

import pytest
from kubernetes.aio import client, config

from dev import apiserver
from rlfleet_operator.adapters.kube import Kube

pytestmark = pytest.mark.integration


def test_a_watch_that_is_left_has_hung_up_before_the_loop_ends(
    plane: apiserver.ControlPlane,
) -> None:
    async def leave() -> None:
        settings = client.Configuration()
        await config.load_kube_config(str(plane.kubeconfig), client_configuration=settings)
        kube = Kube(client.ApiClient(settings))
        listed = await kube.get("/api/v1/namespaces")
        watch = kube.watch("/api/v1/namespaces", listed["metadata"]["resourceVersion"])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await anext(watch)
        await kube.close()

    # What is open when its loop closes is a ResourceWarning, and those are errors here.
    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave())
    loop.close()
    gc.collect()
