"""Calls that come too early wait, because a trainer exits after a retryable error."""

import asyncio
from typing import Any

import httpx
import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from tests.contract.conftest import settled
from tests.contract.subject import Subject
from tests.contract.transcripts import PAUSE, RESUME, RUNS, placed, play, send, serves
from tests.fakes.behaviour import Behaviour
from tests.fakes.worker import Worker
from tests.patience import given_up

PAUSES = ("/pause?mode=keep", "/sleep?level=0", "/engine/pause_generation", "/pause?mode=wait")
SHORT_S = 0.3
LOOK_S = 0.5
SEEN_S = 2.0
"""By then a sidecar has looked several times whether its client is there."""
COMMAND: dict[str, Any] = {"operation": "catch-up"}


def fence(sequence: int) -> dict[str, Any]:
    return {"fleet": "f", "pod": "p", "epoch": 3, "sequence": sequence}


async def pausing(subject: Subject, path: str) -> asyncio.Task[httpx.Response]:
    """Ask for a pause, and see that it waits."""
    asked = asyncio.create_task(subject.admin.post(path, json={}))
    await asyncio.sleep(LOOK_S)
    assert not asked.done()
    return asked


@pytest.fixture
async def led(subject: Subject) -> Subject:
    """A worker that an operator has paused on its way to the second version."""
    await subject.serve("step-1")
    await subject.ok(paths.PREPARE_PATH, "step-2", **COMMAND)
    await subject.ok(paths.PAUSE_PATH, "step-2", **COMMAND, fence=fence(1), ttl_s=60)
    return subject


async def lead_on(subject: Subject) -> None:
    report = await subject.ok(paths.UPDATE_WEIGHTS_PATH, "step-2", **COMMAND, fence=fence(2))
    assert report.proved == "step-2"


@pytest.mark.parametrize("path", PAUSES)
async def test_a_pause_waits_for_the_end_of_a_change_that_an_operator_leads(
    fake: Worker, led: Subject, path: str
) -> None:
    asked = await pausing(led, path)

    await lead_on(led)

    assert (await asked).status_code == 200
    assert not fake.engine.gate.is_open
    await play((RESUME, RUNS, serves("step-2")), led)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/update_weights", {"weight_dir": "{weights}/step-1"}),
        ("/v1/load_lora_adapter", {"lora_name": "poet", "lora_path": "{weights}/adapters/step-1"}),
    ],
)
async def test_an_update_and_an_adapter_wait_for_it_too(
    fake: Worker, led: Subject, path: str, body: dict[str, str]
) -> None:
    asked = asyncio.create_task(led.admin.post(path, json=placed(body, led)))
    await asyncio.sleep(LOOK_S)
    assert not asked.done()

    await lead_on(led)

    reply = await asked
    assert reply.status_code == 200, reply.text
    assert fake.engine.gate.is_open


async def test_a_pause_that_is_asked_for_again_while_it_waits_is_one(
    fake: Worker, led: Subject
) -> None:
    left = await pausing(led, "/pause?mode=keep&clear_cache=false")
    await given_up(left)
    asked = await pausing(led, "/pause?mode=keep&clear_cache=false")

    await lead_on(led)

    assert (await asked).status_code == 200
    await send(RESUME, led)
    await asyncio.sleep(LOOK_S)
    assert fake.engine.gate.is_open


async def test_a_pause_that_two_wait_for_comes_once(fake: Worker, led: Subject) -> None:
    """As when a proxy holds the connection of a client that gave up and asks again."""
    pauses = fake.engine.pauses
    both = [await pausing(led, "/pause?mode=keep") for _ in range(2)]

    await lead_on(led)

    assert [(await asked).status_code for asked in both] == [200, 200]
    assert fake.engine.pauses == pauses + 2, "the operator's own, and theirs"


async def test_a_resume_ends_the_pause_that_waits(fake: Worker, led: Subject) -> None:
    asked = await pausing(led, "/pause?mode=keep")
    refused = await led.admin.post("/resume")
    assert (refused.status_code, refused.json()["code"]) == (503, Code.BUSY)

    await lead_on(led)

    reply = await asked
    assert (reply.status_code, reply.json()["code"]) == (409, Code.WRONG_STAGE)
    assert "resume" in reply.json()["message"]
    await play((RUNS, serves("step-2")), led)
    assert fake.engine.gate.is_open
    # The next one is not meant by it.
    await send(PAUSE, led)


@pytest.mark.parametrize("path", PAUSES[1:3])
async def test_a_pause_whose_client_has_hung_up_does_not_come(
    fake: Worker, led: Subject, path: str
) -> None:
    left = await pausing(led, path)
    await given_up(left)
    await asyncio.sleep(SEEN_S)

    await lead_on(led)

    await asyncio.sleep(LOOK_S)
    await play((RUNS, serves("step-2")), led)
    assert fake.engine.gate.is_open


async def test_a_pause_waits_for_a_command_that_is_under_way(
    fake: Worker, subject: Subject
) -> None:
    await subject.serve("step-1")
    await subject.ok(paths.PREPARE_PATH, "step-2")
    fake.engine.behaviour = Behaviour(reload_s=LOOK_S * 2)
    changing = asyncio.create_task(subject.send(paths.UPDATE_WEIGHTS_PATH, "step-2"))
    await settled(fake, lambda report: report.stage is Stage.LOADING)

    asked = await pausing(subject, "/pause?mode=keep")

    assert ((await changing).status_code, (await asked).status_code) == (200, 200)
    assert ((await subject.report()).stage, fake.engine.gate.is_open) == (Stage.PAUSED, False)


async def test_the_models_of_an_engine_that_boots_are_returned_when_it_is_up(
    fake: Worker, subject: Subject
) -> None:
    await fake.kill_engine()
    await settled(fake, lambda report: report.stage is Stage.DOWN)
    asked = asyncio.create_task(subject.admin.get("/v1/models"))
    await asyncio.sleep(LOOK_S)
    assert not asked.done()

    await fake.restart_engine()

    reply = await asked
    assert reply.status_code == 200
    assert [card["id"] for card in reply.json()["data"]] == [subject.model_name]


async def test_a_sidecar_that_ends_does_not_pause_for_one_that_waits(
    fake: Worker, led: Subject
) -> None:
    asked = await pausing(led, "/pause?mode=keep")

    async with asyncio.timeout(30):
        await fake.stop_sidecar()

    await asyncio.gather(asked, return_exceptions=True)


class TestWithLittlePatience:
    @pytest.fixture
    def identity(self) -> dict[str, object]:
        return {"trainer_busy_s": SHORT_S, "trainer_drain_s": SHORT_S}

    async def test_a_change_that_does_not_end_is_reported_after_the_timeout(
        self, led: Subject
    ) -> None:
        begun = asyncio.get_running_loop().time()

        reply = await led.admin.post("/pause?mode=keep")

        assert (reply.status_code, reply.json()["code"]) == (503, Code.BUSY)
        assert asyncio.get_running_loop().time() - begun >= SHORT_S

    async def test_the_limit_of_generations_in_mode_wait_is_a_setting_of_its_own(
        self, fake: Worker, subject: Subject
    ) -> None:
        await subject.serve("step-1")
        fake.engine.behaviour = Behaviour(token_s=0.01)
        asked = asyncio.create_task(subject.complete(max_tokens=200))
        await subject.until(lambda report: report.in_flight > 0)

        reply = await subject.admin.post("/pause?mode=wait")

        assert (reply.status_code, reply.json()["code"]) == (502, Code.PAUSE_FAILED)
        assert f"not answer within {SHORT_S:g} s" in reply.json()["message"]
        assert (await asked).status_code == 200
        await send(PAUSE, subject)
