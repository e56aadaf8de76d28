"""The fleet API, in front of a real API server, real sidecars and fake engines."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest

from dev.kubernetes import apiserver
from rlfleet_operator.core.trainer.models import record_of
from rlfleet_operator.errors import Conflict
from rlfleet_operator.kube.client import Json, KubeClient, fleet_path
from tests.fakes.behaviour import Behaviour
from tests.hollow import HollowNode
from tests.integration.conftest import Fleet, Operator, kubectl, until
from tests.integration.trainers import SPEC, Replica, Trainer

pytestmark = pytest.mark.integration

SLOW = {"behaviour": Behaviour(reload_s=1.5)}


@pytest.fixture
async def replicas(
    plane: apiserver.ControlPlane, tmp_path: Path, namespace: str, fleet: Fleet
) -> AsyncIterator[tuple[Replica, Replica]]:
    """The leader, and one that stands by; the fleet has no weightVersion."""
    first, second = (Replica(plane, tmp_path / f"{n}.log", namespace) for n in "ab")
    first.start()
    await until(first.is_listening)
    await fleet.create(**SPEC)
    await until(lambda: fleet.is_at_epoch(1), describe=fleet.describe)
    second.start()
    await until(second.is_listening)
    yield first, second
    for replica in (first, second):
        replica.kill()


@pytest.fixture
def trainer(fleet: Fleet) -> Trainer:
    return Trainer(fleet)


async def test_an_update_is_a_rollout_whichever_replica_is_asked(
    replicas: tuple[Replica, Replica], node: HollowNode, fleet: Fleet, trainer: Trainer
) -> None:
    leader, other = replicas
    spec = (await fleet.get())["spec"]

    first = await trainer.updates(other, version="step-1")
    second = await trainer.updates(leader, weight_dir="/weights/step-2/")
    status = await fleet.status()

    assert (first.status, first.body["status"]) == (200, "ok")
    assert [w["version"] for w in first.body["workers"]] == ["step-1", "step-1"]
    assert second.status == 200
    assert second.body["rollout"]["to"] == "step-2"
    assert second.body["message"] == "2 of 2 workers proved step-2"
    assert int(second.headers["content-length"]) > 0
    assert "content-encoding" not in second.headers
    assert (status["rollout"]["reason"], status["rollout"]["id"]) == ("Trainer", 2)
    assert (status["serving"], status["target"]) == ("step-2", "step-2")
    assert (await fleet.get())["spec"] == spec


async def test_workers_and_state_return_what_the_workers_report_now(
    replicas: tuple[Replica, Replica], node: HollowNode, fleet: Fleet, trainer: Trainer
) -> None:
    _, other = replicas
    await trainer.updates(other, version="step-1")

    found = await trainer.asks(other, "GET", "workers")
    state = await trainer.asks(other, "GET", "state")

    assert found.body["protocol_version"] == 1
    assert [w["admin_base_url"] for w in found.body["workers"]] == [
        f"http://qwen-{i}.qwen-workers.{fleet.namespace}.svc:8090" for i in (0, 1)
    ]
    assert {(w["model"], w["world_size"]) for w in found.body["workers"]} == {("qwen", 1)}
    assert all("error" not in w for w in found.body["workers"])
    assert state.body["ready"] is True
    assert (state.body["paused"], state.body["in_flight"]) == (False, 0)
    assert (state.body["desired_version"], state.body["desired_by"]) == ("step-1", "trainer")
    assert state.body["applied_version"] == "step-1"

    await node.worker("qwen-1").stop_sidecar()
    state = await trainer.asks(other, "GET", "state")
    found = await trainer.asks(other, "GET", "workers")

    assert (state.status, state.body["ready"]) == (200, False)
    assert state.body["applied_version"] is None
    assert [w["status"] for w in state.body["workers"]] == ["ok", "error"]
    assert "error" in found.body["workers"][1]


async def test_no_client_is_admitted_without_the_fleet_s_token(
    replicas: tuple[Replica, Replica], kube: KubeClient, fleet: Fleet, trainer: Trainer
) -> None:
    leader, _ = replicas
    another = Fleet(kube, fleet.namespace, "another")
    await another.create(**SPEC)
    await until(lambda: another.is_at_epoch(1))
    own = (await trainer.token()).encode()
    others = (await Trainer(another).token()).encode()
    wrong = [b"", b"Bearer", own, b"Basic " + own, b"Bearer x" + own, b"Bearer " + own[:-1]]

    for says in [*wrong, b"Bearer " + others, b"Bearer \xff\xfe", "Bearer \N{SNOWMAN}".encode()]:
        for method, route in (("GET", "state"), ("GET", "workers"), ("POST", "update_weights")):
            said = await trainer.asks(leader, method, route, says=says)
            assert (said.status, said.body["code"]) == (401, "Unauthorized"), (route, says)
            assert said.headers["www-authenticate"] == "Bearer"
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        for path in ("", "/fleets/x/y/v1/rl/state", f"/fleets/{fleet.namespace}/qwen/v1/rl/state"):
            assert (await client.get(leader.url + path)).status_code == 401
    assert await trainer.target() == ""
    assert (await trainer.asks(leader, "POST", "state")).status == 404
    assert (await trainer.asks(leader, "GET", "state", says=b"bearer " + own)).status == 200


async def test_an_empty_token_admits_no_client(
    replicas: tuple[Replica, Replica], kube: KubeClient, fleet: Fleet, trainer: Trainer
) -> None:
    leader, _ = replicas
    own = b"Bearer " + (await trainer.token()).encode()
    assert (await trainer.asks(leader, "GET", "state", says=own)).status == 200

    path = f"/api/v1/namespaces/{fleet.namespace}/secrets/qwen-admin"
    await kube.patch(path, {"data": {"token": ""}})

    async def is_out() -> bool:
        return (await trainer.asks(leader, "GET", "state", says=own)).status == 401

    await until(is_out)
    for says in (b"Bearer", b"Bearer x", b""):
        assert (await trainer.asks(leader, "GET", "state", says=says)).status == 401


async def test_the_spec_s_version_is_not_a_trainer_s_to_change(
    replicas: tuple[Replica, Replica],
    plane: apiserver.ControlPlane,
    node: HollowNode,
    fleet: Fleet,
    trainer: Trainer,
) -> None:
    leader, _ = replicas
    await trainer.updates(leader, version="step-1")
    kubectl(
        plane,
        "-n",
        fleet.namespace,
        "patch",
        "rlf",
        "qwen",
        "--type=merge",
        "--field-manager=flux",
        "-p",
        '{"spec":{"weightVersion":"step-2"}}',
    )
    await fleet.synced()

    said = await trainer.updates(leader, version="step-3")
    same = await trainer.updates(leader, version="step-2")

    assert (said.status, said.body["code"]) == (409, "VersionOwned")
    assert "spec.weightVersion is step-2, written by flux" in said.body["message"]
    assert same.status == 409
    assert await trainer.target() == ""
    assert (await fleet.status())["serving"] == "step-2"


async def test_a_second_identical_call_joins_and_another_version_supersedes(
    replicas: tuple[Replica, Replica], node: HollowNode, fleet: Fleet, trainer: Trainer
) -> None:
    leader, other = replicas
    node.choose = lambda _: SLOW
    await trainer.updates(leader, version="step-1")

    calls = [asyncio.create_task(trainer.updates(r, version="step-2")) for r in replicas]
    await until(lambda: _is_recorded(trainer, "step-2"))
    gives_up = httpx.Timeout(60, read=0.5)
    gone = asyncio.create_task(
        trainer.asks(other, "POST", "update_weights", json={"version": "step-2"}, timeout=gives_up)
    )
    joined = await asyncio.gather(*calls)
    with pytest.raises(httpx.ReadTimeout):
        await gone

    assert [said.status for said in joined] == [200, 200]
    assert {said.body["rollout"]["id"] for said in joined} == {2}

    old = asyncio.create_task(trainer.updates(other, version="step-1"))
    await until(lambda: _is_recorded(trainer, "step-1"))
    new = await trainer.updates(leader, version="step-3")

    assert new.status == 200
    assert ((await old).status, (await old).body["code"]) == (409, "Superseded")
    assert (await fleet.status())["serving"] == "step-3"


async def _is_recorded(trainer: Trainer, version: str) -> bool:
    return await trainer.target() == version


@pytest.mark.parametrize("how", [Replica.kill, Replica.stop], ids=["killed", "stopped"])
async def test_a_target_outlives_the_process_that_took_it_and_the_one_that_leads(
    replicas: tuple[Replica, Replica],
    node: HollowNode,
    fleet: Fleet,
    trainer: Trainer,
    how: Callable[[Replica], None],
) -> None:
    leader, other = replicas
    node.choose = lambda _: SLOW
    await trainer.updates(leader, version="step-1")

    call = asyncio.create_task(trainer.updates(leader, version="step-2"))
    await until(lambda: _is_recorded(trainer, "step-2"))
    await asyncio.to_thread(how, leader)
    with pytest.raises(httpx.HTTPError):
        await call
    # Without a leader the client waits for an answer as well.
    again = await trainer.updates(other, version="step-2")

    assert again.status == 200
    status = await fleet.status()
    assert status["epoch"] >= 2
    assert status["trainerTarget"]["version"] == "step-2"
    assert (status["serving"], status["rollout"]["id"]) == ("step-2", 2)


async def test_a_worker_that_does_not_prove_it_is_named(
    replicas: tuple[Replica, Replica], node: HollowNode, fleet: Fleet, trainer: Trainer
) -> None:
    leader, other = replicas
    await trainer.updates(leader, version="step-1")
    for pod in node.pods.values():
        pod.worker.engine.behaviour = Behaviour(reload_fails=True)

    failed = await trainer.updates(other, version="step-2")
    rollout = (await fleet.status())["rollout"]
    again = await trainer.updates(leader, version="step-2")
    missing = await trainer.updates(leader, version="step-9")

    assert (failed.status, failed.body["status"]) == (502, "error")
    assert (failed.body["code"], failed.body["retryable"]) == ("NotProved", False)
    assert [w["status"] for w in failed.body["workers"]] == ["error", "error"]
    assert sorted(str(w["version"]) for w in failed.body["workers"]) == ["None", "step-1"]
    assert any("ReloadFailed" in (w["message"] or "") for w in failed.body["workers"])
    assert again.status == 502
    assert rollout["id"] == again.body["rollout"]["id"]
    assert (missing.status, missing.body["retryable"]) == (502, True)
    assert "is Refused" in missing.body["message"]
    assert "step-9 does not exist" in missing.body["message"]


async def test_a_worker_that_was_replaced_since_is_waited_for(
    replicas: tuple[Replica, Replica], node: HollowNode, fleet: Fleet, trainer: Trainer
) -> None:
    _, other = replicas
    await trainer.updates(other, version="step-1")
    old = (await fleet.pods())["qwen-1"]["metadata"]["uid"]
    node.choose = lambda _: {"behaviour": Behaviour(reload_s=10)}

    async def is_missed() -> bool:
        state = await trainer.asks(other, "GET", "state")
        return bool(state.body["applied_version"] != "step-1")

    await fleet.kube.delete(f"/api/v1/namespaces/{fleet.namespace}/pods/qwen-1", old)
    await until(is_missed)
    impatient = await trainer.updates(other, version="step-1", timeout_s=0.1)
    patient = await trainer.updates(other, version="step-1")

    assert (impatient.status, impatient.body["retryable"]) == (502, True)
    assert "some are catching up" in impatient.body["message"]
    assert patient.status == 200
    assert patient.body["rollout"]["id"] == 1
    assert (await fleet.pods())["qwen-1"]["metadata"]["uid"] != old


async def test_an_empty_fleet_is_not_a_success(
    replicas: tuple[Replica, Replica], fleet: Fleet, trainer: Trainer
) -> None:
    _, other = replicas
    await fleet.patch(replicas=0)

    said = await trainer.updates(other, version="step-1")
    state = await trainer.asks(other, "GET", "state")

    assert (said.status, said.body["code"]) == (503, "NoWorkers")
    assert await trainer.target() == ""
    assert (state.body["ready"], state.body["paused"], state.body["workers"]) == (False, False, [])


async def test_what_cannot_be_asked_for_is_refused_and_not_recorded(
    replicas: tuple[Replica, Replica], kube: KubeClient, fleet: Fleet, trainer: Trainer
) -> None:
    _, other = replicas
    bodies: list[Json] = [
        {},
        {"version": "../x"},
        {"version": "a", "weight_dir": "/weights/b"},
        {"weight_dir": "/elsewhere/a"},
        {"version": 3},
        {"versoin": "a"},
    ]

    for body in bodies:
        said = await trainer.updates(other, **body)
        assert (said.status, said.body["code"]) == (400, "InvalidRequest"), (body, said.body)
    said = await trainer.asks(other, "POST", "update_weights", content=b"x" * 70_000)
    assert said.status == 400
    await kube.patch(
        fleet_path(fleet.namespace, fleet.name), {"spec": {"rollout": {"dryRun": True}}}
    )
    said = await trainer.updates(other, version="step-1")
    assert (said.status, said.body["code"]) == (409, "DryRun")
    assert await trainer.target() == ""


async def test_a_version_in_the_spec_wins_the_race_with_a_trainer_s_record(
    fleet: Fleet, trainer: Trainer
) -> None:
    await fleet.create(**SPEC)
    looked_at = await fleet.get()
    path = fleet_path(fleet.namespace, fleet.name)

    await fleet.patch(weightVersion="step-1")
    with pytest.raises(Conflict):
        await fleet.kube.patch(path + "/status", record_of(looked_at, "step-2", 0.0))
    assert await trainer.target() == ""

    await fleet.patch(weightVersion=None)
    await fleet.kube.patch(path + "/status", record_of(await fleet.get(), "step-2", 0.0))
    assert await trainer.target() == "step-2"


async def test_an_address_that_is_taken_ends_the_operator(
    plane: apiserver.ControlPlane, tmp_path: Path, namespace: str
) -> None:
    log = tmp_path / "operator.log"
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        operator = Operator(plane, log, namespace, RLFLEET_FLEETS_PORT=str(port))
        operator.start()
        try:
            await until(operator.has_ended)
        finally:
            operator.kill()

    assert "set RLFLEET_FLEETS_PORT to a free port" in log.read_text()
