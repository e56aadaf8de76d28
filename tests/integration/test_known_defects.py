"""Five defects of an earlier controller for the same task, each shown not to be here."""

import asyncio

import httpx
import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.report import Stage
from tests.fakes.behaviour import Behaviour
from tests.hollow import HollowNode
from tests.integration.conftest import WAIT_S, Fleet, Operator, until

pytestmark = pytest.mark.integration

OLD, NEW = "step-1", "step-2"
NAMES = ("qwen-0", "qwen-1", "qwen-2")


async def begun(fleet: Fleet, **rollout: object) -> None:
    """Create a fleet of three that serves the old version, all workers together."""
    rules = {"strategy": "Barrier"} | rollout
    await fleet.create(weightVersion=OLD, replicas=3, rollout=rules)
    await fleet.synced()


async def are(node: HollowNode, stage: Stage, version: str | None, *names: str) -> bool:
    reports = [await node.worker(name).report() for name in names]
    return {(report.stage, report.proved) for report in reports} == {(stage, version)}


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        # It says that it did not pause, and has.
        (Behaviour(pause_fails=True), "qwen-1 did not pause"),
        (Behaviour(flush_fails=True), "qwen-1"),
    ],
    ids=["the pause", "the reset of the cache"],
)
async def test_an_error_of_one_leaves_no_worker_paused_or_on_another_version(
    operator: Operator, node: HollowNode, fleet: Fleet, fault: Behaviour, said: str
) -> None:
    await begun(fleet)
    node.worker("qwen-1").engine.behaviour = fault

    await fleet.patch(weightVersion=NEW)
    stalled = await fleet.stalled()

    assert stalled["reason"] == "RolloutFailed"
    assert said in stalled["message"]
    await until(lambda: are(node, Stage.OPEN, OLD, *NAMES))
    assert [node.worker(name).engine.paused for name in NAMES] == [None] * 3
    assert (await fleet.status())["readyReplicas"] == 3


async def test_an_update_error_on_some_does_not_resume_all(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await begun(fleet)
    engine = node.worker("qwen-1").engine
    engine.behaviour = Behaviour(reload_fails=True)
    answered = len(engine.served)

    await fleet.patch(weightVersion=NEW)
    await until(lambda: are(node, Stage.OPEN, NEW, "qwen-0", "qwen-2"), describe=fleet.describe)
    await until(lambda: shows(fleet, readyReplicas=2, serving=NEW, quarantinedReplicas=1))

    assert (await fleet.stalled())["reason"] == "WorkersQuarantined"
    assert await are(node, Stage.DOUBT, None, "qwen-1")
    assert not engine.gate.is_open
    assert len(engine.served) == answered


async def shows(fleet: Fleet, **wanted: object) -> bool:
    status = await fleet.status()
    return {name: status.get(name) for name in wanted} == wanted


async def test_the_version_is_not_in_memory_only(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await begun(fleet)
    await fleet.patch(weightVersion=NEW)
    before = await fleet.synced()
    flushes = [node.worker(name).engine.flushes for name in NAMES]

    operator.kill()
    for name in NAMES:
        await node.worker(name).stop_sidecar()
        await node.worker(name).start_sidecar()
    operator.start()
    await until(lambda: fleet.is_at_epoch(before["epoch"] + 1))
    after = await fleet.synced()

    assert (after["serving"], after["proved"]) == (NEW, "3/3")
    assert after["rollout"] == before["rollout"]
    # No worker changed again to find it out.
    assert [node.worker(name).engine.flushes for name in NAMES] == flushes


async def test_a_new_engine_is_not_ready_on_its_health(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await begun(fleet)
    node.choose = lambda _: {"behaviour": Behaviour(reload_s=2)}

    await fleet.patch(replicas=4)
    await until(lambda: is_healthy(node, "qwen-3"))
    worker = node.worker("qwen-3")
    asked = asyncio.create_task(ask(worker.engine_url))
    seen = set()
    while True:
        ready = await ready_of(worker.admin_url)
        # Asked afterwards: what is not proved now was not when it was asked whether it is ready.
        report = await worker.report()
        if report.proved is not None:
            break
        seen.add(ready)
        assert not (await fleet.pods())["qwen-3"]["status"].get("ready")
        await asyncio.sleep(0.1)
    await fleet.synced()

    # While it held the base model alone it took no traffic, and its clients waited.
    assert report.proved == OLD
    assert seen == {503}
    assert await asked == await ask(node.worker("qwen-0").engine_url)
    assert await ready_of(worker.admin_url) == 200


async def is_healthy(node: HollowNode, name: str) -> bool:
    if name not in node.pods:
        return False
    try:
        async with httpx.AsyncClient(trust_env=False, timeout=WAIT_S) as http:
            engine = await http.get(f"{node.worker(name).engine_url}/health")
            sidecar = await http.get(node.worker(name).admin_url + paths.LIVE_PATH)
            return engine.is_success and sidecar.is_success
    except httpx.HTTPError:
        return False


async def ready_of(url: str) -> int:
    async with httpx.AsyncClient(trust_env=False, timeout=WAIT_S) as http:
        return (await http.get(url + paths.READY_PATH)).status_code


async def ask(url: str) -> list[int]:
    """Ask an engine at its own address, past Service and readiness; return the tokens."""
    body = {"model": "fake", "prompt": [1, 2, 3], "max_tokens": 4}
    async with httpx.AsyncClient(trust_env=False, timeout=WAIT_S) as http:
        reply = await http.post(f"{url}/v1/completions", json=body)
    return list(reply.json()["choices"][0]["token_ids"])
