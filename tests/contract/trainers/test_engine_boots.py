"""What a trainer asks of a worker whose engine boots: it waits, as a pause does."""

import asyncio

import pytest

from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from tests.contract.conftest import settled
from tests.contract.subject import Subject
from tests.contract.transcripts import PAUSE, RESUME, RUNS, Call, placed, play, serves, update
from tests.contract.transfers import INIT
from tests.fakes.worker import Worker

LOOK_S = 0.5
SHORT_S = 0.3
LORA = Call(
    "POST /v1/load_lora_adapter",
    body={"lora_name": "policy-v1", "lora_path": "{weights}/adapters/step-1"},
)
WAITING = (
    PAUSE,
    update("step-2"),
    Call("POST /collective_rpc", body={"method": "reload_weights", "args": ["{weights}/step-2"]}),
    INIT,
    LORA,
    Call("POST /v1/unload_lora_adapter", body={"lora_name": "policy-v1"}),
)


@pytest.fixture
async def down(fake: Worker, subject: Subject) -> Subject:
    """A worker whose engine died."""
    await subject.serve("step-1")
    await fake.kill_engine()
    await settled(fake, lambda report: report.stage is Stage.DOWN)
    return subject


@pytest.mark.parametrize("call", WAITING, ids=lambda call: call.request)
async def test_a_trainer_s_call_waits_for_an_engine_that_boots(
    fake: Worker, down: Subject, call: Call
) -> None:
    path = call.request.partition(" ")[2]
    asked = asyncio.create_task(down.admin.post(path, json=placed(call.body, down)))
    await asyncio.sleep(LOOK_S)
    assert not asked.done()

    await fake.restart_engine()

    reply = await asked
    assert reply.status_code == 200, reply.text


async def test_the_weights_that_waited_are_proved_and_the_resume_after_is_nothing_new(
    fake: Worker, down: Subject
) -> None:
    asked = asyncio.create_task(play((update("step-2"), RESUME, RUNS, serves("step-2")), down))
    await asyncio.sleep(LOOK_S)

    await fake.restart_engine()

    await asked
    assert fake.engine.gate.is_open


async def test_a_sidecar_that_ends_does_not_wait_for_the_engine(
    fake: Worker, down: Subject
) -> None:
    asked = asyncio.create_task(play((update("step-2"),), down))
    await asyncio.sleep(LOOK_S)

    async with asyncio.timeout(10):
        await fake.stop_sidecar()

    await asyncio.gather(asked, return_exceptions=True)


class TestWithLittlePatience:
    @pytest.fixture
    def identity(self) -> dict[str, object]:
        return {"trainer_up_s": SHORT_S}

    @pytest.mark.parametrize("call", [*WAITING, RESUME], ids=lambda call: call.request)
    async def test_an_engine_that_does_not_come_up_is_reported_after_the_timeout(
        self, down: Subject, call: Call
    ) -> None:
        begun = asyncio.get_running_loop().time()
        path = call.request.partition(" ")[2]

        reply = await down.admin.post(path, json=placed(call.body, down))

        assert reply.json()["code"] == Code.ENGINE_UNREACHABLE
        assert reply.status_code >= 500
        assert asyncio.get_running_loop().time() - begun >= SHORT_S
