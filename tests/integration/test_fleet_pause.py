"""Pause, resume and flush of a whole fleet by the fleet API: real API server, real sidecars."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from dev.kubernetes import apiserver
from tests.fakes.behaviour import Behaviour
from tests.hollow import HollowNode
from tests.integration.conftest import Fleet, until
from tests.integration.trainers import SPEC, Replica, Reply, Trainer

pytestmark = pytest.mark.integration

GIVES_UP = httpx.Timeout(60, read=1)
"""For a client that sends its request, and does not wait for the answer."""


@pytest.fixture
async def replica(
    plane: apiserver.ControlPlane, tmp_path: Path, namespace: str, fleet: Fleet, node: HollowNode
) -> AsyncIterator[Replica]:
    """An operator and its fleet of two that serves step-1 because a trainer asked for it."""
    one = Replica(plane, tmp_path / "operator.log", namespace)
    one.start()
    await until(one.is_listening)
    await fleet.create(**SPEC)
    await until(lambda: fleet.is_at_epoch(1), describe=fleet.describe)
    said = await Trainer(fleet).updates(one, version="step-1")
    assert said.status == 200, said.body
    yield one
    one.kill()


@pytest.fixture
def trainer(fleet: Fleet) -> Trainer:
    return Trainer(fleet)


async def pauses(trainer: Trainer, replica: Replica, **body: object) -> Reply:
    return await trainer.asks(replica, "POST", "pause", json=body)


async def resumes(trainer: Trainer, replica: Replica) -> Reply:
    return await trainer.asks(replica, "POST", "resume", content=b"")


def gates(node: HollowNode) -> list[bool]:
    return [node.worker(f"qwen-{i}").engine.gate.is_open for i in (0, 1)]


def paused(node: HollowNode) -> list[bool]:
    return [node.worker(f"qwen-{i}").engine.paused is not None for i in (0, 1)]


def stages(reply: Reply) -> list[str]:
    return [worker["stage"] for worker in reply.body["workers"]]


async def test_pause_update_resume_at_one_url(
    replica: Replica, node: HollowNode, fleet: Fleet, trainer: Trainer
) -> None:
    pause = await pauses(trainer, replica, mode="keep", clear_cache=False)
    again = await pauses(trainer, replica)
    status = await fleet.status()

    assert (pause.status, again.status, pause.body["paused"]) == (200, 200, True)
    assert pause.body["message"] == "2 of 2 workers are paused"
    assert (gates(node), paused(node)) == ([False, False], [True, True])
    assert status["trainerPause"]["until"] == again.body["paused_until"]
    state = await trainer.asks(replica, "GET", "state")
    assert (state.body["paused"], state.body["paused_by"]) == (True, "trainer")
    # The operator neither resumes them nor counts them as failed.
    await asyncio.sleep(3)
    assert gates(node) == [False, False]
    status = await fleet.status()
    assert {w["phase"] for w in status["workers"]} == {"Paused"}
    told = {c["type"]: c["message"] for c in status["conditions"]}
    assert status["trainerPause"]["until"] in told["Paused"]
    assert "Stalled" not in told

    update = await trainer.updates(replica, version="step-2")
    assert (update.status, gates(node)) == (200, [False, False]), update.body
    assert [w["version"] for w in update.body["workers"]] == ["step-2", "step-2"]
    assert (await trainer.asks(replica, "GET", "state")).body["paused"] is True

    resume = await resumes(trainer, replica)
    once_more = await resumes(trainer, replica)
    assert (resume.status, once_more.status) == (200, 200), resume.body
    assert (gates(node), paused(node)) == ([True, True], [False, False])
    assert stages(resume) == ["Open", "Open"]

    async def is_forgotten() -> bool:
        return "trainerPause" not in await fleet.status()

    await until(is_forgotten)
    state = await trainer.asks(replica, "GET", "state")
    assert (state.body["paused"], state.body["applied_version"]) == (False, "step-2")
    assert (await fleet.status())["serving"] == "step-2"


async def test_a_flush_empties_the_caches_of_a_paused_fleet(
    replica: Replica, node: HollowNode, trainer: Trainer
) -> None:
    early = await trainer.asks(replica, "POST", "flush_cache", json={})
    await pauses(trainer, replica, clear_cache=False)
    paused_only = await trainer.asks(replica, "POST", "flush_cache", json={})
    await trainer.updates(replica, version="step-2")
    after_an_update = await trainer.asks(replica, "POST", "flush_cache", json={})

    assert (early.status, early.body["code"]) == (409, "NotPaused")
    for flush in (paused_only, after_an_update):
        assert (flush.status, stages(flush)) == (200, ["Paused", "Paused"]), flush.body
        assert flush.body["message"] == "2 of 2 workers emptied their caches"
    assert (await resumes(trainer, replica)).status == 200
    assert gates(node) == [True, True]


@pytest.mark.parametrize("named", [None, ""])
async def test_an_update_that_names_no_directory_loads_nothing_and_fails_no_worker(
    replica: Replica, node: HollowNode, fleet: Fleet, trainer: Trainer, named: str | None
) -> None:
    await pauses(trainer, replica)
    before = await fleet.status()

    said = await trainer.updates(replica, weight_dir=named)

    assert (said.status, said.body["status"], said.body["version"]) == (200, "ok", "step-1")
    assert said.body["message"] == "nothing was loaded: weight_dir names no directory"
    assert stages(said) == ["Paused", "Paused"]
    after = await fleet.status()
    assert (after["trainerPause"], after["trainerTarget"]) == (
        before["trainerPause"],
        before["trainerTarget"],
    )
    assert (await resumes(trainer, replica)).status == 200
    assert gates(node) == [True, True]


async def test_a_blind_resume_after_a_failed_update_opens_nothing(
    replica: Replica, node: HollowNode, trainer: Trainer
) -> None:
    await pauses(trainer, replica)
    for pod in node.pods.values():
        pod.worker.engine.behaviour = Behaviour(reload_fails=True)

    update = await trainer.updates(replica, version="step-2")
    resume = await resumes(trainer, replica)

    assert (update.status, update.body["retryable"]) == (502, False)
    assert (resume.status, resume.body["code"]) == (409, "NotResumable")
    assert gates(node) == [False, False]
    # The version was given to one worker; the other waits with the one before.
    assert sorted(str(w["version"]) for w in update.body["workers"]) == ["None", "step-1"]

    for pod in node.pods.values():
        pod.worker.engine.behaviour = Behaviour()
    wrong = await trainer.updates(replica, weight_dir="/elsewhere/step-1")
    assert (wrong.status, (await resumes(trainer, replica)).status) == (400, 409)
    nothing = await trainer.updates(replica, weight_dir=None)
    assert (nothing.status, (await resumes(trainer, replica)).status) == (200, 409)
    good = await trainer.updates(replica, version="step-1")
    assert (good.status, gates(node)) == (200, [False, False]), good.body
    assert (await resumes(trainer, replica)).status == 200
    assert gates(node) == [True, True]


async def test_a_pause_that_fails_on_one_leaves_no_worker_paused(
    replica: Replica, node: HollowNode, fleet: Fleet, trainer: Trainer
) -> None:
    node.worker("qwen-1").engine.behaviour = Behaviour(pause_fails=True)

    said = await pauses(trainer, replica)

    assert (said.status, said.body["code"]) == (502, "Incomplete")
    assert "these resume; pause again" in said.body["message"]
    assert said.body["paused"] is False
    assert [w["status"] for w in said.body["workers"]][1] == "error"

    async def is_undone() -> bool:
        return gates(node) == [True, True] and "trainerPause" not in await fleet.status()

    await until(is_undone, 60)
    assert (await trainer.asks(replica, "GET", "state")).body["paused"] is False


async def test_a_pause_whose_client_went_away_is_withdrawn_all_the_same(
    replica: Replica, node: HollowNode, fleet: Fleet, trainer: Trainer
) -> None:
    node.worker("qwen-1").engine.behaviour = Behaviour(pause_s=20)

    async with fleet.writes() as writes:
        with pytest.raises(httpx.ReadTimeout):
            await trainer.asks(replica, "POST", "pause", json={"timeout_s": 3}, timeout=GIVES_UP)

        async def is_recorded() -> bool:
            return any("trainerPause" in written["status"] for written in writes)

        await until(is_recorded)

    async def is_undone() -> bool:
        return gates(node)[0] and (await fleet.status()).get("trainerPause", {}).get("ending", True)

    await until(is_undone, 60)


async def test_a_fleet_that_is_held_stays_so_when_a_second_pause_fails(
    replica: Replica, node: HollowNode, trainer: Trainer
) -> None:
    await pauses(trainer, replica)
    await node.worker("qwen-1").stop_sidecar()

    said = await pauses(trainer, replica, timeout_s=3)

    assert (said.status, said.body["code"], said.body["paused"]) == (502, "Incomplete", True)
    await node.worker("qwen-1").start_sidecar()
    assert gates(node) == [False, False]
    assert (await pauses(trainer, replica)).status == 200
    assert (await resumes(trainer, replica)).status == 200
    assert gates(node) == [True, True]


async def test_a_pause_ends_by_itself_when_its_trainer_is_gone(
    replica: Replica, node: HollowNode, trainer: Trainer
) -> None:
    said = await pauses(trainer, replica, ttl_s=12)
    assert (said.status, gates(node)) == (200, [False, False])

    async def is_over() -> bool:
        return gates(node) == [True, True]

    await until(is_over, 60)
    state = await trainer.asks(replica, "GET", "state")
    assert (state.body["paused_by"], state.body["applied_version"]) == (None, "step-1")
    flush = await trainer.asks(replica, "POST", "flush_cache", json={})
    assert (flush.status, flush.body["code"]) == (409, "NotPaused")


async def test_a_pause_outlives_the_process_that_leads(
    replica: Replica,
    plane: apiserver.ControlPlane,
    tmp_path: Path,
    namespace: str,
    node: HollowNode,
    fleet: Fleet,
    trainer: Trainer,
) -> None:
    await pauses(trainer, replica)
    other = Replica(plane, tmp_path / "other.log", namespace)
    other.start()
    await until(other.is_listening)

    await asyncio.to_thread(replica.stop)
    await until(lambda: fleet.is_at_epoch(2), describe=fleet.describe)
    assert gates(node) == [False, False]
    resume = await resumes(trainer, other)
    other.kill()

    assert (resume.status, gates(node)) == (200, [True, True]), resume.body


async def test_the_spec_s_version_is_not_paused_and_ends_a_pause(
    replica: Replica, node: HollowNode, fleet: Fleet, trainer: Trainer
) -> None:
    await pauses(trainer, replica)

    await fleet.patch(weightVersion="step-3")
    await fleet.synced()

    assert gates(node) == [True, True]
    assert "trainerPause" not in await fleet.status()
    for route in ("pause", "resume", "flush_cache"):
        said = await trainer.asks(replica, "POST", route, json={})
        assert (said.status, said.body["code"]) == (409, "VersionOwned"), route
        assert "spec.weightVersion is step-3" in said.body["message"]
    assert gates(node) == [True, True]


async def test_a_worker_that_is_replaced_underneath_waits_too(
    replica: Replica, node: HollowNode, fleet: Fleet, trainer: Trainer
) -> None:
    await pauses(trainer, replica)
    old = (await fleet.pods())["qwen-1"]["metadata"]["uid"]
    await fleet.kube.delete(f"/api/v1/namespaces/{fleet.namespace}/pods/qwen-1", old)

    async def has_joined() -> bool:
        state = await trainer.asks(replica, "GET", "state")
        return stages(state) == ["Paused", "Proved"]

    await until(has_joined)
    assert gates(node) == [False, False]
    assert (await trainer.updates(replica, version="step-2")).status == 200
    assert gates(node) == [False, False]
    assert (await resumes(trainer, replica)).status == 200
    assert gates(node) == [True, True]


async def test_what_a_fleet_cannot_be_asked_is_refused(
    replica: Replica, node: HollowNode, fleet: Fleet, trainer: Trainer
) -> None:
    wrong = await pauses(trainer, replica, mode="later")
    by_query = await trainer.asks(replica, "POST", "pause?mode=wait&clear_cache=true")
    assert (wrong.status, by_query.status) == (400, 200), by_query.body
    await resumes(trainer, replica)
    node.choose = lambda _: {}
    for pod in node.pods.values():
        pod.worker.engine.behaviour = Behaviour(reload_s=3)
    update = asyncio.create_task(trainer.updates(replica, version="step-2"))
    await until(lambda: _rolls(fleet))

    crossing = await pauses(trainer, replica)
    assert (crossing.status, crossing.body["code"]) == (409, "RolloutRuns")
    assert (await update).status == 200
    await fleet.patch(replicas=0)
    await until(lambda: _is_empty(trainer, replica))
    assert (await pauses(trainer, replica)).status == 503


async def _rolls(fleet: Fleet) -> bool:
    return bool((await fleet.status())["rollout"]["to"] == "step-2")


async def _is_empty(trainer: Trainer, replica: Replica) -> bool:
    return not (await trainer.asks(replica, "GET", "state")).body["workers"]
