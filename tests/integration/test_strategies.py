"""Strategies and failure policies against a real API server, sidecars and fake engines."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from rlfleet_contract.worker.report import Stage
from rlfleet_operator.kube.client import fleet_path
from tests.fakes.behaviour import Behaviour
from tests.hollow import HollowNode
from tests.integration.conftest import Fleet, Operator, until
from tests.patience import stalls

pytestmark = pytest.mark.integration


async def begun(fleet: Fleet, *, replicas: int = 3, **rollout: Any) -> None:
    """Create a fleet that serves step-1."""
    await fleet.create(weightVersion="step-1", replicas=replicas, rollout=rollout)
    await fleet.synced()


async def phase(fleet: Fleet, wanted: str) -> dict[str, Any]:
    """Wait until the newest rollout is in a phase; return the status."""

    async def is_there() -> bool:
        status = await fleet.status()
        return str((status.get("rollout") or {}).get("phase")) == wanted

    await until(is_there, describe=fleet.describe)
    return await fleet.status()


async def proved(node: HollowNode) -> dict[str, str | None]:
    return {name: (await pod.worker.report()).proved for name, pod in sorted(node.pods.items())}


async def stages(node: HollowNode) -> set[Stage]:
    return {(await pod.worker.report()).stage for pod in node.pods.values()}


@asynccontextmanager
async def watched(node: HollowNode) -> AsyncIterator[list[set[str]]]:
    """Collect, all the while, which versions are served behind open gates."""
    seen: list[set[str]] = []

    async def look() -> None:
        while True:
            reports = [await pod.worker.report() for pod in node.pods.values()]
            seen.append({r.proved for r in reports if r.stage is Stage.OPEN and r.proved})
            await asyncio.sleep(0.01)

    looking = asyncio.create_task(look())
    try:
        yield seen
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


# --- Barrier -------------------------------------------------------------------------------------


async def test_a_barrier_never_serves_two_versions_at_once(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await begun(fleet, strategy="Barrier")
    for slow, pod in enumerate(node.pods.values()):
        pod.worker.engine.behaviour = Behaviour(reload_s=0.3 * slow)

    async with watched(node) as seen:
        await fleet.patch(weightVersion="step-2")
        status = await fleet.synced()

    assert status["serving"] == "step-2"
    assert {frozenset(one) for one in seen} >= {frozenset({"step-1"}), frozenset({"step-2"})}
    # Gates open one after the other: the last look before the new version saw none of the old.
    first = next(place for place, one in enumerate(seen) if "step-2" in one)
    assert all("step-1" not in one for one in seen[first:])


async def test_a_barrier_that_cannot_pause_all_serves_the_old_version_on_all(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await begun(fleet, strategy="Barrier", timeouts={"pauseSeconds": 1})
    node.worker("qwen-1").engine.behaviour = Behaviour(pause_s=30)

    await fleet.patch(weightVersion="step-2")
    stalled = await fleet.stalled()
    await until(lambda: _all_open(node))

    assert stalled["reason"] == "RolloutFailed"
    assert "qwen-1 did not pause" in stalled["message"]
    assert set((await proved(node)).values()) == {"step-1"}
    assert all(p.worker.engine.reloads == 1 for p in node.pods.values())


async def _all_open(node: HollowNode) -> bool:
    return await stages(node) == {Stage.OPEN}


async def test_a_barrier_that_lost_its_operator_between_pause_and_load_goes_through(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await begun(fleet, strategy="Barrier")
    node.worker("qwen-2").engine.behaviour = Behaviour(pause_s=1.5)
    await fleet.patch(weightVersion="step-2")
    await until(lambda: _is_in(node, "qwen-0", Stage.PAUSED))

    operator.kill()
    operator.start()
    status = await fleet.synced()

    assert status["serving"] == "step-2"
    assert status["rollout"]["id"] == 2


async def test_a_barrier_whose_version_leaves_the_spec_leaves_no_worker_paused(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await begun(fleet, strategy="Barrier")
    node.worker("qwen-2").engine.behaviour = Behaviour(reload_s=2)
    await fleet.patch(weightVersion="step-2")
    await until(lambda: _is_in(node, "qwen-0", Stage.PROVED))

    await fleet.patch(weightVersion=None)
    # Long before their time to live is over.
    await until(lambda: _all_open(node), 60, fleet.describe)

    assert (await proved(node))["qwen-0"] == "step-2"


async def test_a_fleet_with_a_foreign_finalizer_keeps_no_change_alive(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await begun(fleet, strategy="Barrier")
    node.worker("qwen-2").engine.behaviour = Behaviour(pause_s=30)
    path = fleet_path(fleet.namespace, fleet.name)
    await fleet.kube.patch(path, {"metadata": {"finalizers": ["example.com/kept"]}})
    await fleet.patch(weightVersion="step-2")
    await until(lambda: _is_in(node, "qwen-0", Stage.PAUSED))

    await fleet.kube.delete(path, (await fleet.get())["metadata"]["uid"])
    await until(lambda: _says(fleet, "Deleting, kept by finalizers: example.com/kept"))
    await asyncio.sleep(1)
    first = (await node.worker("qwen-0").report()).expires_s
    await asyncio.sleep(3)
    later = (await node.worker("qwen-0").report()).expires_s
    await fleet.kube.patch(path, {"metadata": {"finalizers": None}})

    assert first is not None
    assert later is not None
    assert later < first - 1


async def _says(fleet: Fleet, summary: str) -> bool:
    return bool((await fleet.status())["summary"] == summary)


async def _is_in(node: HollowNode, name: str, stage: Stage) -> bool:
    return (await node.worker(name).report()).stage is stage


async def test_a_barrier_waits_for_one_that_fell_back_to_the_old_version_on_the_way(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await begun(fleet, strategy="Barrier")
    node.worker("qwen-1").engine.behaviour = Behaviour(reload_s=0.3)
    node.worker("qwen-2").engine.behaviour = Behaviour(pause_s=1.5)

    async with watched(node) as seen:
        await fleet.patch(weightVersion="step-2")
        await until(lambda: _has_paused(node, "qwen-0"))
        node.worker("qwen-0").engine.behaviour = Behaviour(pause_s=0.5, flush_fails=True)
        await until(lambda: _is_in(node, "qwen-1", Stage.PROVED))
        await until(lambda: _is_in(node, "qwen-0", Stage.OPEN))
        await asyncio.sleep(2)
        node.worker("qwen-0").engine.behaviour = Behaviour()
        status = await fleet.synced()

    assert status["rollout"]["id"] == 2
    assert {len(one) for one in seen} == {0, 1}


async def _has_paused(node: HollowNode, name: str) -> bool:
    report = await node.worker(name).report()
    return report.stage is Stage.PAUSED and report.running is None


# --- Canary --------------------------------------------------------------------------------------


async def test_a_manual_canary_waits_for_the_patch_that_names_its_version(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    canary: dict[str, Any] = {"count": 1, "promote": "Manual"}
    await begun(fleet, strategy="Canary", canary=canary)

    await fleet.patch(weightVersion="step-2")
    held = await phase(fleet, "CanaryHold")
    await asyncio.sleep(2)
    assert await proved(node) == {"qwen-0": "step-2", "qwen-1": "step-1", "qwen-2": "step-1"}
    assert (await fleet.condition("Reconciling"))["reason"] == "CanaryHold"
    assert held["skew"] == 1

    await fleet.patch(rollout={"canary": canary | {"promotedVersion": "step-2"}})
    status = await fleet.synced()

    assert status["rollout"]["heldSeconds"] >= 1
    await fleet.wait_for_event("CanaryReady")


async def test_a_canary_is_held_for_its_time(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await begun(fleet, strategy="Canary", canary={"holdSeconds": 3})

    await fleet.patch(weightVersion="step-2")
    await phase(fleet, "CanaryHold")
    status = await fleet.synced()

    assert 2 <= status["rollout"]["heldSeconds"] <= 30


async def test_a_canary_that_fails_pauses_no_other_worker(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await begun(fleet, strategy="Canary", onFailure="Rollback", maxUnavailable="100%")
    node.worker("qwen-0").engine.behaviour = Behaviour(nan_logprobs=True)

    await fleet.patch(weightVersion="step-2")
    await fleet.wait_for_event("RollbackStarted")
    status = await fleet.status()

    assert (await proved(node))["qwen-1"] == (await proved(node))["qwen-2"] == "step-1"
    assert [node.worker(f"qwen-{i}").engine.reloads for i in (1, 2)] == [1, 1]
    assert (status["rollout"]["from"], status["rollout"]["to"]) == ("step-2", "step-1")


# --- partition and paused ------------------------------------------------------------------------


async def test_a_partition_is_moved_down_step_by_step(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await begun(fleet, maxUnavailable="100%")

    await fleet.patch(weightVersion="step-2", rollout={"partition": 2})
    await phase(fleet, "Partitioned")
    assert await proved(node) == {"qwen-0": "step-1", "qwen-1": "step-1", "qwen-2": "step-2"}
    assert (await fleet.condition("WeightsSynced"))["reason"] == "Partitioned"

    await fleet.patch(rollout={"partition": 0})
    assert (await fleet.synced())["rollout"]["id"] == 2


async def test_a_paused_rollout_holds_between_batches_with_no_worker_paused(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await begun(fleet, maxUnavailable=1)
    for pod in node.pods.values():
        pod.worker.engine.behaviour = Behaviour(reload_s=0.5)

    await fleet.patch(weightVersion="step-2")
    await until(lambda: _counts(node, "step-2", 1))
    await fleet.patch(rollout={"paused": True})
    await phase(fleet, "Paused")
    await asyncio.sleep(1.5)
    at_hold = await proved(node)
    assert set(at_hold.values()) == {"step-1", "step-2"}
    assert await stages(node) == {Stage.OPEN}

    await fleet.patch(rollout={"paused": False})
    assert (await fleet.synced())["serving"] == "step-2"


async def _counts(node: HollowNode, version: str, least: int) -> bool:
    return list((await proved(node)).values()).count(version) >= least


# --- what a failure does -------------------------------------------------------------------------


async def test_rollback_takes_every_worker_back_while_the_failed_one_is_still_down(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await begun(fleet, maxUnavailable=1, onFailure="Rollback")
    node.worker("qwen-1").engine.behaviour = Behaviour(nan_logprobs=True)

    await fleet.patch(weightVersion="step-2")
    await fleet.wait_for_event("RollbackStarted")
    await node.worker("qwen-1").kill_engine()
    await until(lambda: _are_at(node, {"qwen-0": "step-1", "qwen-2": "step-1"}))
    node.worker("qwen-1").engine.behaviour = Behaviour()
    await node.worker("qwen-1").restart_engine()
    status = await phase(fleet, "RolledBack")
    stalled = await fleet.stalled()

    assert set((await proved(node)).values()) == {"step-1"}
    assert stalled["reason"] == "RolledBack"
    assert "qwen-1" in stalled["message"]
    assert status["history"][0]["result"] == "Failed"

    await fleet.patch(rollout={"restartId": "once more"})
    assert (await fleet.synced())["serving"] == "step-2"


async def test_an_engine_that_exits_in_a_load_of_a_good_version_fails_no_rollout(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await begun(fleet, maxUnavailable=1, onFailure="Rollback")
    node.worker("qwen-0").engine.behaviour = Behaviour(dies_in_reload=True)

    await fleet.patch(weightVersion="step-2")
    await fleet.wait_for_event("EngineExited")
    node.worker("qwen-0").engine.behaviour = Behaviour()
    await node.worker("qwen-0").restart_engine()

    status = await fleet.synced()
    assert (status["serving"], status["rollout"]["phase"]) == ("step-2", "Completed")
    assert "Failed" not in {past["result"] for past in status["history"]}


async def _are_at(node: HollowNode, wanted: dict[str, str]) -> bool:
    found = await proved(node)
    return all(found[name] == version for name, version in wanted.items())


async def test_hold_stops_and_leaves_everybody_as_they_are(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await begun(fleet, maxUnavailable=1, onFailure="Hold")
    node.worker("qwen-1").engine.behaviour = Behaviour(nan_logprobs=True)

    await fleet.patch(weightVersion="step-2")
    stalled = await fleet.stalled()

    assert stalled["reason"] == "RolloutHeld"
    assert await proved(node) == {"qwen-0": "step-2", "qwen-1": None, "qwen-2": "step-1"}


# --- order ---------------------------------------------------------------------------------------


async def test_twenty_patches_in_five_seconds_end_at_the_last_with_two_commits_at_most(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await begun(fleet)
    for pod in node.pods.values():
        pod.worker.engine.behaviour = Behaviour(reload_s=1.5)

    moments = []
    for patch in range(20):
        await fleet.patch(weightVersion=f"step-{1 + (patch + 2) % 3}")
        moments.append(time.monotonic())
        await asyncio.sleep(0.25)
    await fleet.patch(weightVersion="step-2")
    moments.append(time.monotonic())
    status = await fleet.synced()

    assert status["serving"] == "step-2"
    commits = [pod.worker.engine.reloads - 1 for pod in node.pods.values()]
    # A version that stays the newest for that long may be taken up.
    assert max(commits) <= 2 + stalls(moments, longer_than_s=2), commits


async def test_a_quick_version_waits_again_after_its_target_left_for_a_moment(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await begun(fleet, replicas=1)
    for version in ("step-2", "step-3"):
        await fleet.patch(weightVersion=version)
        await until(partial(_leads_to, fleet, version), describe=fleet.describe)
    await asyncio.sleep(1.5)

    # The first change is written to status, so that the next comes too early to be recorded.
    for change in ({"historyLimit": 11}, {"weightVersion": "step-2"}, {"weightVersion": "step-3"}):
        await fleet.patch(**change)
        await asyncio.sleep(0.2)
    back = time.monotonic()
    status = await fleet.synced()

    assert time.monotonic() - back > 2
    assert (status["serving"], status["rollout"]["id"]) == ("step-3", 3)


async def _leads_to(fleet: Fleet, version: str) -> bool:
    return bool((await fleet.status())["rollout"]["to"] == version)


async def test_going_there_and_back_are_three_rollouts(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await begun(fleet, replicas=1)
    for version in ("step-2", "step-1"):
        await fleet.patch(weightVersion=version)
        status = await fleet.synced()

    assert status["rollout"]["id"] == 3
    assert [past["to"] for past in status["history"]] == ["step-2", "step-1"]


# --- staleness -----------------------------------------------------------------------------------


async def test_a_worker_with_weights_too_old_is_out_of_traffic_if_so_declared(
    operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    await begun(fleet, replicas=2)
    await fleet.patch(weightVersion="step-3", rollout={"partition": 1})
    await phase(fleet, "Partitioned")

    await fleet.patch(staleness={"maxSkew": 1})
    await until(lambda: _is_degraded(fleet))
    assert (await fleet.status())["readyReplicas"] == 2

    await fleet.patch(staleness={"onViolation": "Unready"})
    await until(lambda: _is_ready(fleet, 1))


async def _is_degraded(fleet: Fleet) -> bool:
    return (await fleet.condition("Degraded")).get("reason") == "StaleServing"


async def _is_ready(fleet: Fleet, count: int) -> bool:
    return int((await fleet.status())["readyReplicas"]) == count
