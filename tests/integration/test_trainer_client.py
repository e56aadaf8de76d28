"""A trainer drives a fleet with rlfleet.fleet, through a restart of the operator too."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dev.kubernetes import apiserver
from rlfleet.fleet import (
    AsyncFleetClient,
    FleetClient,
    FleetError,
    NotProvedError,
    VersionOwnedError,
)
from tests.fakes.behaviour import Behaviour
from tests.hollow import HollowNode
from tests.integration.conftest import Fleet, until
from tests.integration.trainers import SPEC, Replica, Trainer

pytestmark = pytest.mark.integration


@pytest.fixture
async def operator(
    plane: apiserver.ControlPlane, tmp_path: Path, namespace: str, fleet: Fleet
) -> AsyncIterator[Replica]:
    made = Replica(plane, tmp_path / "operator.log", namespace)
    made.start()
    await until(made.is_listening)
    await fleet.create(**SPEC)
    await until(lambda: fleet.is_at_epoch(1), describe=fleet.describe)
    yield made
    made.kill()


@pytest.fixture
def url(operator: Replica, fleet: Fleet) -> str:
    return f"{operator.url}/fleets/{fleet.namespace}/{fleet.name}"


@pytest.fixture
async def token(operator: Replica, fleet: Fleet) -> str:
    return await Trainer(fleet).token()


async def test_a_trainer_updates_pauses_and_resumes(
    node: HollowNode, fleet: Fleet, url: str, token: str
) -> None:
    def train() -> list[object]:
        with FleetClient(url, token) as client:
            first = client.update_weights("step-1", timeout_s=60)
            with client.paused("keep", ttl_s=300):
                is_paused = client.state().paused
                client.flush_cache()
                client.update_weights("step-2", timeout_s=60)
            after = client.wait("step-2", timeout_s=30)
        return [first.message, is_paused, after.paused, after.desired_by, after.ready]

    found = await asyncio.to_thread(train)

    assert found == ["2 of 2 workers proved step-1", True, False, "trainer", True]
    assert (await fleet.status())["serving"] == "step-2"


async def test_an_update_outlives_a_restart_of_the_operator(
    node: HollowNode, operator: Replica, fleet: Fleet, url: str, token: str
) -> None:
    async with AsyncFleetClient(url, token) as client:
        await client.update_weights("step-1", timeout_s=60)
        for name in ("qwen-0", "qwen-1"):
            node.worker(name).engine.behaviour = Behaviour(reload_s=1.5)
        going = asyncio.create_task(client.update_weights("step-2", timeout_s=90))
        trainer = Trainer(fleet)

        async def is_recorded() -> bool:
            return await trainer.target() == "step-2"

        await until(is_recorded)
        operator.kill()
        await asyncio.sleep(1)
        operator.start()

        result = await going

    assert result.message == "2 of 2 workers proved step-2"


async def test_errors_have_types_codes_and_workers(
    node: HollowNode, fleet: Fleet, url: str, token: str
) -> None:
    async def both_run() -> bool:
        return {"qwen-0", "qwen-1"} <= node.pods.keys()

    async with AsyncFleetClient(url, token) as client:
        await until(both_run)
        for name in ("qwen-0", "qwen-1"):
            node.worker(name).engine.behaviour = Behaviour(reload_fails=True)
        with pytest.raises(NotProvedError) as failed:
            await client.update_weights("step-2", timeout_s=60)
        for name in ("qwen-0", "qwen-1"):
            node.worker(name).engine.behaviour = Behaviour()
        await fleet.patch(weightVersion="step-1")
        with pytest.raises(VersionOwnedError, match=r"spec\.weightVersion"):
            await client.update_weights("step-3", timeout_s=60)
        assert (await client.wait("step-1", timeout_s=60)).desired_by == "spec"
    async with AsyncFleetClient(url, "another") as stranger:
        with pytest.raises(FleetError) as rejected:
            await stranger.state()

    assert any("ReloadFailed" in str(one.message) for one in failed.value.workers)
    assert (rejected.value.code, rejected.value.status) == ("Unauthorized", 401)


@pytest.mark.parametrize("wrong", ["qwen", "http://rlfleet:8082", "ftp://a/fleets/n/f"])
def test_a_url_without_a_fleet_is_rejected_before_any_request(wrong: str) -> None:
    with pytest.raises(ValueError, match="has the form http://OPERATOR:8082/fleets/NAMESPACE/NAME"):
        FleetClient(wrong, "token")
