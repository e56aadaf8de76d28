"""Adapters of a fleet against a real API server, real sidecars and fake engines."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes.adapters import write_adapter
from tests.fakes.behaviour import Behaviour
from tests.hollow import HollowNode
from tests.integration.conftest import Fleet, Operator, until

pytestmark = pytest.mark.integration

ARGS = {"args": ["--enable-lora", "--max-lora-rank=8"]}
NAMES = ("qwen-0", "qwen-1")


@pytest.fixture
def poets(weights: Path) -> Path:
    root = weights / "poet"
    for step in (1, 2):
        write_adapter(root / f"v{step}", seed=step)
    return root


def poet(root: Path, version: str) -> list[dict[str, Any]]:
    return [{"name": "poet", "path": f"{root}/{{version}}", "version": version}]


async def is_loaded(fleet: Fleet, version: str, workers: int = 2) -> bool:
    found = (await fleet.status()).get("adapters") or [{}]
    return (found[0].get("version"), found[0].get("loadedWorkers")) == (version, workers)


async def answer(node: HollowNode, name: str) -> str | int:
    body = {"model": "poet", "prompt": [1, 2, 3], "max_tokens": 4}
    async with httpx.AsyncClient(base_url=node.worker(name).engine_url, timeout=60) as engine:
        reply = await engine.post("/v1/completions", json=body)
    if reply.status_code != httpx.codes.OK:
        return reply.status_code
    text = reply.json()["choices"][0]["text"]
    assert isinstance(text, str)
    return text


async def test_adapters_are_loaded_replaced_and_unloaded_everywhere(
    operator: Operator, node: HollowNode, fleet: Fleet, poets: Path
) -> None:
    await fleet.create(weightVersion="step-1", engine=ARGS, adapters=poet(poets, "v1"))
    await fleet.synced()
    await until(lambda: is_loaded(fleet, "v1"))
    pods = await fleet.pods()
    first = [await answer(node, name) for name in NAMES]
    stop = asyncio.Event()

    async def sample() -> list[str | int]:
        seen: list[str | int] = []
        while not stop.is_set():
            seen += await asyncio.gather(*(answer(node, name) for name in NAMES))
        return seen

    sampling = asyncio.create_task(sample())
    await fleet.patch(adapters=poet(poets, "v2"))
    await until(lambda: is_loaded(fleet, "v2"))
    stop.set()
    seen = await sampling
    second = [await answer(node, name) for name in NAMES]

    assert first[0] == first[1] != second[0] == second[1]
    assert set(seen) <= {first[0], second[0]}
    assert (await fleet.status())["workers"][0]["adapters"] == ["poet=v2"]
    assert (await fleet.status())["serving"] == "step-1"
    assert {name: pod["metadata"]["uid"] for name, pod in (await fleet.pods()).items()} == {
        name: pod["metadata"]["uid"] for name, pod in pods.items()
    }

    await fleet.patch(adapters=None)
    await until(lambda: _is_gone(fleet))

    assert [await answer(node, name) for name in NAMES] == [404, 404]


async def _is_gone(fleet: Fleet) -> bool:
    status = await fleet.status()
    return not status.get("adapters") and not any(w.get("adapters") for w in status["workers"])


async def test_a_late_joiner_takes_traffic_only_with_the_adapter(
    operator: Operator, node: HollowNode, fleet: Fleet, poets: Path
) -> None:
    await fleet.create(replicas=1, weightVersion="step-1", engine=ARGS, adapters=poet(poets, "v1"))
    await until(lambda: is_loaded(fleet, "v1", 1))

    node.choose = lambda _: {"behaviour": Behaviour(adapter_s=10)}
    await fleet.patch(replicas=2)
    await until(lambda: _are(fleet, proved=2, ready=1))
    await until(lambda: _are(fleet, proved=2, ready=2))

    assert await answer(node, "qwen-1") == await answer(node, "qwen-0") != 404


async def test_a_late_joiner_begins_with_what_a_trainer_has_loaded_at_the_others(
    operator: Operator, node: HollowNode, fleet: Fleet, poets: Path
) -> None:
    await fleet.create(weightVersion="step-1", engine=ARGS)
    await fleet.synced()
    for name in NAMES:
        await _loaded_by_trainer(node, name, poets / "v1")
    before = await answer(node, "qwen-0")

    node.choose = lambda _: {"behaviour": Behaviour(adapter_s=10)}
    await fleet.patch(replicas=3)
    await until(lambda: _are(fleet, proved=3, ready=2))
    await until(lambda: _are(fleet, proved=3, ready=3))

    assert await answer(node, "qwen-2") == before != 404
    node.choose = lambda _: {}
    await _loaded_by_trainer(node, "qwen-2", poets / "v2")
    await until(lambda: _serve(fleet, ["poet=v1", "poet=v1", "poet=v2"]))


async def _loaded_by_trainer(node: HollowNode, name: str, directory: Path) -> None:
    body = {"lora_name": "poet", "lora_path": str(directory)}
    async with node.worker(name).client() as sidecar:
        reply = await sidecar.post("/load_lora_adapter", json=body)
    assert reply.status_code == httpx.codes.OK, reply.text


async def _serve(fleet: Fleet, wanted: list[str]) -> bool:
    told = [worker.get("adapters") for worker in (await fleet.status())["workers"]]
    return told == [[one] for one in wanted]


async def _are(fleet: Fleet, *, proved: int, ready: int) -> bool:
    status = await fleet.status()
    return (status["provedReplicas"], status["readyReplicas"]) == (proved, ready)


async def test_a_broken_adapter_is_named_and_serving_continues_until_it_is_mended(
    operator: Operator, node: HollowNode, fleet: Fleet, poets: Path
) -> None:
    await fleet.create(weightVersion="step-1", engine=ARGS, adapters=poet(poets, "v1"))
    await fleet.synced()
    await until(lambda: is_loaded(fleet, "v1"))
    before = await answer(node, "qwen-0")
    broken = write_adapter(poets / "v3", seed=3) / "adapter_model.safetensors"
    whole = broken.read_bytes()
    broken.write_bytes(whole[:-8])

    await fleet.patch(adapters=poet(poets, "v3"))
    await until(lambda: _is_degraded(fleet))
    status = await fleet.status()

    assert status["adapters"][0]["reason"] == "CheckpointInvalid"
    assert "adapter_model.safetensors" in status["adapters"][0]["message"]
    assert status["readyReplicas"] == 2
    await fleet.wait_for_event("AdapterFailed")
    assert await answer(node, "qwen-0") == before

    await fleet.patch(weightVersion="step-2")
    assert (await fleet.synced())["serving"] == "step-2"

    broken.write_bytes(whole)
    await until(lambda: is_loaded(fleet, "v3"))
    assert (await fleet.condition("Degraded")) == {}


async def _is_degraded(fleet: Fleet) -> bool:
    return (await fleet.condition("Degraded")).get("reason") == "AdaptersFailed"
