"""Adapters as TRL and SkyRL have them: no marker, and a pause of their own around the load."""

import asyncio
from pathlib import Path

import httpx
import pytest

from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.lora.completeness import CALLED_S
from tests.contract.subject import Subject
from tests.contract.transcripts import PAUSE, RESUME, RUNS, Call, play, send, update
from tests.fakes.checkpoints import MARKER
from tests.fakes.worker import Worker
from tests.patience import given_up

TENSORS = "adapter_model.safetensors"
NAME = "policy-v1"
ROUTES = ("/v1/load_lora_adapter", "/skyrl/v1/load_lora_adapter", "/load_lora_adapter")


def load(route: str, step: str = "step-1") -> Call:
    body = {"lora_name": NAME, "lora_path": f"{{weights}}/adapters/{step}"}
    return Call(f"POST {route}", body=body)


UNLOAD = Call("POST /v1/unload_lora_adapter", body={"lora_name": NAME})


@pytest.fixture
async def serving(subject: Subject) -> Subject:
    await subject.serve("step-1")
    return subject


@pytest.fixture
def unmarked(weights: Path) -> Path:
    """An adapter as PEFT saves one."""
    directory = weights / "adapters" / "step-1"
    (directory / MARKER).unlink()
    return directory


async def loaded(subject: Subject) -> list[str]:
    return [one.name for one in (await subject.report()).adapters if one.is_loaded]


@pytest.mark.parametrize("route", ROUTES)
async def test_a_load_within_the_trainer_s_own_pause_is_done(
    serving: Subject, fake: Worker, route: str
) -> None:
    """TRL's order: pause, load, resume, unload what is too old."""
    await play((PAUSE, load(route)), serving)

    assert (await serving.report()).stage is Stage.PAUSED
    assert not fake.engine.gate.is_open
    assert await loaded(serving) == [NAME]
    await play((RESUME, RUNS, UNLOAD), serving)
    assert await loaded(serving) == []


async def test_an_unload_within_the_pause_and_a_load_after_its_update_are_done(
    serving: Subject, fake: Worker
) -> None:
    await play((load(ROUTES[0]), PAUSE, UNLOAD), serving)
    assert await loaded(serving) == []

    await play((update("step-2"), load(ROUTES[0])), serving)

    assert (await serving.report()).stage is Stage.PROVED
    assert not fake.engine.gate.is_open
    await play((RESUME, RUNS), serving)
    assert await loaded(serving) == [NAME]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.usefixtures("unmarked")
async def test_an_adapter_without_a_marker_is_complete_by_its_own_signs(
    serving: Subject, route: str
) -> None:
    await send(load(route), serving)

    assert await loaded(serving) == [NAME]


async def asked(subject: Subject) -> httpx.Response:
    body = {"lora_name": NAME, "lora_path": f"{subject.weights}/adapters/step-1"}
    return await subject.admin.post(ROUTES[0], json=body)


async def test_one_that_is_still_being_written_is_waited_for(
    serving: Subject, unmarked: Path
) -> None:
    whole = (unmarked / TENSORS).read_bytes()
    (unmarked / TENSORS).write_bytes(whole[:-8])
    loading = asyncio.create_task(asked(serving))
    await asyncio.sleep(2 * CALLED_S)
    assert not loading.done()

    (unmarked / TENSORS).write_bytes(whole)

    assert (await loading).status_code == 200


@pytest.mark.usefixtures("unmarked")
async def test_what_skyrl_sends_after_an_unload_is_no_failed_update(serving: Subject) -> None:
    """It clears the adapter that it may keep in the engine's memory."""
    await send(load("/skyrl/v1/load_lora_adapter"), serving)
    await send(UNLOAD, serving)

    discard = {"method": "skyrl_discard_in_memory_lora", "args": [], "kwargs": {"lora_name": NAME}}
    discarded = await serving.admin.post("/collective_rpc", json=discard)

    assert discarded.json() == {"results": [None]}
    await send(RESUME, serving)
    assert (await serving.report()).stage is Stage.OPEN


async def test_art_s_adapter_has_the_step_in_its_name(serving: Subject, unmarked: Path) -> None:
    body = {"lora_name": "policy@7", "lora_path": str(unmarked)}

    reply = await serving.admin.post("/v1/load_lora_adapter", json=body)

    assert reply.status_code == 200
    assert (await serving.complete(model="policy@7")).status_code == 200
    assert await loaded(serving) == ["policy@7"]


class TestWithFilesOfAnotherUser:
    @pytest.fixture
    def identity(self) -> dict[str, object]:
        return {"engine_uid": 65532}

    async def test_an_unreadable_one_is_rejected_at_once_with_the_way_out(
        self, serving: Subject, unmarked: Path
    ) -> None:
        """The safetensors library writes mode 0600, so root's file is read by root alone."""
        (unmarked / TENSORS).chmod(0o600)

        reply = await asked(serving)

        assert (reply.status_code, reply.json()["code"]) == (422, Code.CHECKPOINT_UNREADABLE)
        assert str(unmarked / TENSORS) in reply.json()["message"]
        assert "mode 0600) is not readable by uid 65532" in reply.json()["message"]
        assert await loaded(serving) == []


class TestWithLittlePatience:
    @pytest.fixture
    def identity(self) -> dict[str, object]:
        return {"trainer_adapter_wait_s": 3 * CALLED_S}

    @pytest.mark.parametrize("sign", ["no tensors", "half", "no configuration", "prime-rl's"])
    async def test_an_incomplete_one_without_a_marker_is_rejected(
        self, serving: Subject, unmarked: Path, sign: str
    ) -> None:
        match sign:
            case "no tensors":
                (unmarked / TENSORS).unlink()
            case "half":
                (unmarked / TENSORS).write_bytes((unmarked / TENSORS).read_bytes()[:-8])
            case "no configuration":
                (unmarked / "adapter_config.json").unlink()
            case _:
                (unmarked / ".sender_ready").touch()

        reply = await asked(serving)

        assert (reply.status_code, reply.json()["code"]) == (425, Code.CHECKPOINT_INCOMPLETE)
        assert await loaded(serving) == []

    async def test_one_that_is_written_again_and_again_is_refused(
        self, serving: Subject, unmarked: Path
    ) -> None:
        async def write() -> None:
            data = (unmarked / TENSORS).read_bytes()
            while True:
                (unmarked / TENSORS).write_bytes(data)
                await asyncio.sleep(CALLED_S / 4)

        writing = asyncio.create_task(write())
        try:
            reply = await asked(serving)
        finally:
            await given_up(writing)

        assert reply.json()["code"] == Code.CHECKPOINT_INCOMPLETE
