"""Transfers that fail, and what the worker serves then."""

import asyncio
from itertools import count

import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.report import Stage
from tests.contract.conftest import ended, settled
from tests.contract.subject import Subject
from tests.contract.transcripts import (
    PAUSE,
    RESUME,
    Engine,
    play,
    resume_refused,
    send,
    serves,
    update,
)
from tests.contract.transfers import GROUP, INIT, PART, SEND, START, posted
from tests.fakes.behaviour import Behaviour
from tests.fakes.worker import Worker
from tests.patience import Signs, seconds_until, undisturbed

TTL_S = 0.6
LATE_S = 2.0
SHORT_S = 0.3


@pytest.mark.parametrize("paused", [True, False])
async def test_a_group_that_does_not_form_changes_nothing(
    served: Subject, fake: Worker, *, paused: bool
) -> None:
    if paused:
        await send(PAUSE, served)
    fake.engine.behaviour = Behaviour(group_fails=True)

    failed = posted(
        "/init_weight_transfer_engine",
        422,
        {"init_info": GROUP},
        code="TransferFailed",
        retryable=False,
    )
    reply = await send(failed, served)

    report = await served.report()
    assert "No CUDA GPUs are available" in reply.json()["message"]
    assert (report.stage, report.proved) == (Stage.PAUSED if paused else Stage.OPEN, "step-1")
    if paused:
        await send(RESUME, served)
        await send(PAUSE, served)
        await send(posted("/start_weight_update", 409), served)


async def test_a_part_that_fails_is_doubt_which_only_a_checkpoint_ends(
    served: Subject, fake: Worker
) -> None:
    await play((INIT, PAUSE, START), served, fake)
    fake.engine.behaviour = Behaviour(receive_fails=True)

    await send(posted("/update_weights", 422, {"update_info": PART}, code="ReloadFailed"), served)
    assert (await served.report()).stage is Stage.DOUBT
    assert not fake.engine.gate.is_open

    fake.engine.behaviour = Behaviour()
    refused = posted("/start_weight_update", 409, code="EngineInDoubt")
    await play((resume_refused("EngineInDoubt"), refused, PAUSE), served, fake)
    await send(resume_refused("EngineInDoubt", "unknown"), served)
    await play((PAUSE, update("step-2"), RESUME, serves("step-2")), served, fake)


async def test_an_engine_that_does_not_answer_after_it_is_in_doubt(
    served: Subject, fake: Worker
) -> None:
    await play((INIT, PAUSE, START, SEND, Engine(Behaviour(nan_logprobs=True))), served, fake)

    await send(posted("/finish_weight_update", 422, code="ProofFailed"), served)

    assert (await served.report()).stage is Stage.DOUBT
    await send(resume_refused("EngineInDoubt"), served)


async def test_a_sidecar_that_dies_in_an_update_comes_back_in_doubt(
    served: Subject, fake: Worker
) -> None:
    await play((INIT, PAUSE, START, SEND), served, fake)

    await fake.stop_sidecar()
    await fake.start_sidecar()
    report = await settled(fake, lambda report: report.stage is not Stage.DOWN)

    assert report.stage is Stage.DOUBT
    await send(resume_refused("EngineInDoubt", "has not ended"), served)
    await send(posted("/finish_weight_update", 409, code="EngineInDoubt"), served)


class TestWithLittlePatience:
    """A transfer's calls may take a moment, and a trainer's change may stand still for one."""

    @pytest.fixture
    def identity(self) -> dict[str, object]:
        return {
            "trainer_transfer_s": SHORT_S,
            "trainer_prepare_s": TTL_S / 2,
            "trainer_ttl_s": TTL_S,
        }

    async def test_a_group_that_never_forms_leaves_the_worker_serving(
        self, served: Subject, fake: Worker
    ) -> None:
        fake.engine.behaviour = Behaviour(group_s=LATE_S)
        forming = posted("/init_weight_transfer_engine", 422, {"init_info": GROUP})

        async def asked() -> tuple[int, int, str] | None:
            signs = Signs()
            asking = asyncio.create_task(send(forming, served))
            await signs.give(asyncio.sleep(SHORT_S / 3))
            meanwhile = await signs.give(served.admin.post("/resume"))
            waited = await served.admin.post("/pause")
            told = (await asking).json()["message"]
            await send(RESUME, served)
            found = meanwhile.status_code, waited.status_code, told
            return found if signs.longest_s < SHORT_S else None

        resumed, paused, told = await undisturbed(asked)
        assert (resumed, paused) == (503, 200)
        assert f"not answer within {SHORT_S:g} s" in told
        report = await served.report()
        assert (report.stage, report.proved) == (Stage.OPEN, "step-1")
        assert fake.engine.gate.is_open
        await play((PAUSE, update("step-2"), RESUME, serves("step-2")), served, fake)

    async def test_a_part_that_never_arrives_is_doubt_and_the_engine_is_ended(
        self, served: Subject, fake: Worker
    ) -> None:
        await play((INIT, PAUSE, START), served, fake)
        fake.engine.behaviour = Behaviour(receive_s=LATE_S)

        await send(posted("/update_weights", 422, {"update_info": PART}), served)

        assert (await served.report()).stage is Stage.DOUBT
        await send(resume_refused("EngineInDoubt"), served)
        _, took_s = await ended(fake, Stage.DOWN)
        assert took_s < TTL_S + LATE_S

    async def test_a_trainer_that_dies_in_its_update_leaves_no_worker_behind(
        self, served: Subject, fake: Worker
    ) -> None:
        await play((INIT, PAUSE, START, SEND), served, fake)
        assert (await served.report()).stage is Stage.LOADING

        _, took_s = await ended(fake, Stage.DOWN)

        assert took_s < TTL_S + LATE_S
        assert not fake.engine.gate.is_open

    async def test_an_operator_that_wants_another_version_waits_for_its_end(
        self, served: Subject, fake: Worker
    ) -> None:
        await play((INIT, PAUSE, START, SEND), served, fake)
        command = {"operation": "rollout-1", "version": "step-2"}
        assert (await served.admin.post(paths.PREPARE_PATH, json=command)).status_code == 200

        async def is_down() -> bool:
            # It drives, as far as it knows: it commands, and gives signs of life.
            fence = {"fleet": "f", "pod": "p", "epoch": 7, "sequence": next(numbers)}
            sent = await served.admin.post(
                paths.UPDATE_WEIGHTS_PATH, json=command | {"fence": fence}
            )
            assert sent.status_code in {409, 503}
            await served.admin.get(
                paths.STATE_PATH, headers={paths.EPOCH_HEADER: "7", paths.TARGET_HEADER: "step-2"}
            )
            return (await served.report()).stage is Stage.DOWN

        numbers = count()
        assert await seconds_until(is_down) < TTL_S + LATE_S
        assert fake.engine.transfer.calls.count("update") == 1

    async def test_calls_that_are_refused_do_not_put_off_its_end(
        self, served: Subject, fake: Worker
    ) -> None:
        await play((INIT, PAUSE), served, fake)

        async def is_open() -> bool:
            await served.admin.post("/update_weights", json={"update_info": PART})
            return (await served.report()).stage is Stage.OPEN

        assert await seconds_until(is_open) < TTL_S + LATE_S
