"""prime-rl's classic client at a fleet's one URL: real API server, real sidecars."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from dev.kubernetes import apiserver
from tests.hollow import HollowNode
from tests.integration.conftest import Fleet, until
from tests.integration.trainers import SPEC, Replica, Trainer

pytestmark = pytest.mark.integration


@pytest.fixture
async def client(
    plane: apiserver.ControlPlane, tmp_path: Path, namespace: str, fleet: Fleet, node: HollowNode
) -> AsyncIterator[httpx.AsyncClient]:
    """prime-rl's admin client for a fleet of two that serves step-1."""
    replica = Replica(plane, tmp_path / "operator.log", namespace)
    replica.start()
    await until(replica.is_listening)
    await fleet.create(**SPEC)
    await until(lambda: fleet.is_at_epoch(1), describe=fleet.describe)
    trainer = Trainer(fleet)
    assert (await trainer.updates(replica, version="step-1")).status == 200
    url = f"{replica.url}/fleets/{namespace}/{fleet.name}"
    headers = {"Authorization": f"Bearer {await trainer.token()}"}
    async with httpx.AsyncClient(
        base_url=url, headers=headers, trust_env=False, timeout=60
    ) as found:
        yield found
    replica.kill()


async def posts(client: httpx.AsyncClient, path: str, **words: Any) -> str:
    """Post as prime-rl does: an error is the status line."""
    reply = await client.post(path, **words)
    reply.raise_for_status()
    return str(reply.json()["status"])


async def update(client: httpx.AsyncClient, step: str) -> str:
    return await posts(client, "/update_weights", json={"weight_dir": f"/weights/{step}"})


async def pause(client: httpx.AsyncClient) -> str:
    return await posts(client, "/pause", params={"mode": "keep", "clear_cache": "false"})


async def test_a_run_s_calls_at_one_url(
    client: httpx.AsyncClient, node: HollowNode, fleet: Fleet
) -> None:
    assert (await client.get("/health")).status_code == 200
    (card,) = (await client.get("/v1/models")).json()["data"]
    assert card["id"] == (await fleet.get())["spec"]["model"]["name"]

    for step in ("step-2", "step-1"):
        assert await pause(client) == "paused"
        assert not any(node.worker(f"qwen-{i}").engine.gate.is_open for i in (0, 1))
        assert await update(client, step) == "ok"
        assert await posts(client, "/resume") == "resumed"
        assert (await fleet.status())["serving"] == step
    assert all(node.worker(f"qwen-{i}").engine.gate.is_open for i in (0, 1))

    with pytest.raises(httpx.HTTPStatusError, match="400 InvalidRequest: the fleet API takes"):
        await posts(client, "/init_broadcaster", json={"host": "trainer", "port": 29501})
    await pause(client)
    with pytest.raises(httpx.HTTPStatusError, match="400 InvalidRequest: weight_dir names no"):
        await posts(client, "/update_weights", json={"weight_dir": None})
    with pytest.raises(httpx.HTTPStatusError, match="409 NotResumable"):
        await posts(client, "/resume")
    await pause(client)
    await posts(client, "/resume")


async def test_a_fleet_is_scaled_down_in_the_midst_of_an_update(
    client: httpx.AsyncClient, fleet: Fleet
) -> None:
    await pause(client)
    updating = asyncio.create_task(update(client, "step-2"))
    await fleet.patch(replicas=1)

    assert await updating == "ok"
    assert await posts(client, "/resume") == "resumed"
    assert (await fleet.status())["serving"] == "step-2"


async def test_a_pod_is_deleted_in_the_midst_of_an_update(
    client: httpx.AsyncClient, node: HollowNode, fleet: Fleet
) -> None:
    await pause(client)
    updating = asyncio.create_task(update(client, "step-2"))
    uid = (await fleet.pods())["qwen-1"]["metadata"]["uid"]
    await fleet.kube.delete(f"/api/v1/namespaces/{fleet.namespace}/pods/qwen-1", uid)

    assert await updating == "ok"
    assert await posts(client, "/resume") == "resumed"
    assert (await fleet.status())["serving"] == "step-2"


async def test_without_a_key_prime_rl_is_shown_why(client: httpx.AsyncClient) -> None:
    reply = await client.get("/v1/models", headers={"Authorization": ""})

    assert (reply.status_code, reply.json()["data"]) == (401, [])
    assert reply.reason_phrase.startswith("Unauthorized: no such fleet, or wrong token")
