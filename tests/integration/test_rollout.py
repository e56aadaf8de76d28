"""Rollouts against a real API server, real sidecars and fake engines."""

import asyncio
from pathlib import Path

import pytest

from rlfleet_operator.core.model.version_label import label_of
from rlfleet_operator.core.model.world import VERSION_LABEL
from tests.fakes import checkpoints
from tests.hollow import HollowNode
from tests.integration.conftest import Fleet, Operator, until

pytestmark = pytest.mark.integration


async def test_a_new_fleet_becomes_ready_at_its_declared_version(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await fleet.create(weightVersion="step-1")

    status = await fleet.synced()

    assert status["serving"] == "step-1"
    assert status["proved"] == "2/2"
    assert status["readyReplicas"] == 2
    assert [w["phase"] for w in status["workers"]] == ["Serving", "Serving"]


async def test_a_patch_changes_every_worker_and_restarts_none(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await fleet.create(weightVersion="step-1")
    await fleet.synced()
    before = await fleet.pods()

    await fleet.patch(weightVersion="step-2")
    status = await fleet.synced()
    after = await fleet.pods()

    assert status["serving"] == "step-2"
    assert status["rollout"]["from"] == "step-1"
    assert status["rollout"]["phase"] == "Completed"
    assert status["rollout"]["timings"]["window"]["maxMs"] >= 0
    assert {n: p["metadata"]["uid"] for n, p in before.items()} == {
        n: p["metadata"]["uid"] for n, p in after.items()
    }
    assert {p["metadata"]["labels"]["rlfleet.dev/weight-version"] for p in after.values()} == {
        "step-2"
    }
    await fleet.wait_for_event("RolloutCompleted", times=2)
    reasons = await fleet.reasons()
    assert reasons.count("RolloutStarted") == 2
    assert reasons.count("RolloutCompleted") == 2


async def test_a_version_of_every_length_that_a_fleet_takes_is_rolled_out(
    operator: Operator, node: HollowNode, fleet: Fleet, weights: Path
) -> None:
    longest = "run-" + "7" * 124
    checkpoints.write_version(weights, longest, seed=4)
    await fleet.create(weightVersion="step-1")
    await fleet.synced()

    await fleet.patch(weightVersion=longest)
    status = await fleet.synced()

    assert status["serving"] == longest
    assert status["readyReplicas"] == 2
    labels = {p["metadata"]["labels"][VERSION_LABEL] for p in (await fleet.pods()).values()}
    assert labels == {label_of(longest)}


async def test_a_version_that_does_not_exist_stalls_and_serving_continues(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await fleet.create(weightVersion="step-1", rollout={"timeouts": {"prepareSeconds": 15}})
    await fleet.synced()

    await fleet.patch(weightVersion="step-9")
    await until(lambda: _waits_for(fleet, "step-9 does not exist"))
    stalled = await fleet.stalled()
    status = await fleet.status()

    assert stalled["reason"] == "VersionNotFound"
    assert "step-9" in stalled["message"]
    assert status["serving"] == "step-1"
    assert status["readyReplicas"] == 2


async def _waits_for(fleet: Fleet, words: str) -> bool:
    status = await fleet.status()
    assert "Stalled" not in {condition["type"] for condition in status["conditions"]}
    messages = [worker.get("message", "") for worker in status["workers"]]
    return all(words in said for said in (status["rollout"]["message"], *messages))


async def test_nothing_is_written_at_rest(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await fleet.create(weightVersion="step-1")
    await fleet.synced()
    await asyncio.sleep(2.5)
    before = (await fleet.get())["metadata"]["resourceVersion"]

    await asyncio.sleep(5)

    assert (await fleet.get())["metadata"]["resourceVersion"] == before


async def test_a_restart_at_rest_writes_the_next_epoch_and_nothing_else(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await fleet.create(weightVersion="step-1")
    await fleet.synced()
    await asyncio.sleep(2.5)
    before = (await fleet.get())["status"]
    async with fleet.writes() as writes:
        operator.stop()
        operator.start()
        await until(lambda: fleet.is_at_epoch(before["epoch"] + 1))
        await asyncio.sleep(4)

    assert before["epoch"] == 1
    assert [written["status"] for written in writes] == [before | {"epoch": 2}]
