"""The order of the calls with which a trainer sends weights, and what is refused."""

import asyncio

import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.report import Stage
from tests.contract.conftest import settled
from tests.contract.subject import Subject
from tests.contract.transcripts import (
    PAUSE,
    RESUME,
    Call,
    Step,
    play,
    resume_refused,
    send,
    serves,
    update,
)
from tests.contract.transfers import GROUP, INIT, PART, SEND, START, finish, posted, rpc
from tests.fakes.behaviour import Behaviour
from tests.fakes.worker import Worker

ORDERS: dict[str, tuple[tuple[Step, ...], Call, str]] = {
    "start before the group": (
        (PAUSE,),
        posted("/start_weight_update", 409),
        "init_weight_transfer_engine first",
    ),
    "update before start": (
        (INIT, PAUSE),
        posted("/update_weights", 409, {"update_info": PART}),
        "start_weight_update",
    ),
    "finish before start": (
        (INIT, PAUSE),
        posted("/finish_weight_update", 409),
        "start_weight_update first",
    ),
    "finish before anything was sent": (
        (INIT, PAUSE, START),
        posted("/finish_weight_update", 409),
        "send update_weights",
    ),
    "finish twice": (
        (INIT, PAUSE, START, SEND, finish("1")),
        posted("/finish_weight_update", 409),
        "first",
    ),
    "SkyRL's methods before the group": (
        (PAUSE,),
        rpc("skyrl_start_weight_update", status=409),
        "init_weight_transfer_engine first",
    ),
    "SkyRL's part without what it is": (
        (INIT, PAUSE),
        rpc("update_weights_nccl", {}, status=400),
        "update_info",
    ),
    "SkyRL's tensors in its kernels' form": (
        (INIT, PAUSE),
        rpc("skyrl_start_weight_update", {"is_checkpoint_format": False}, status=400),
        "is_checkpoint_format",
    ),
    "SkyRL's chunks by IPC": (
        (INIT, PAUSE),
        rpc("update_weights_ipc", {"update_info": {}}, status=400),
        "expected one of",
    ),
    "another form of tensors": (
        (INIT, PAUSE),
        posted("/start_weight_update", 400, {"is_checkpoint_format": False}),
        "is_checkpoint_format",
    ),
    "an update that says nothing": (
        (INIT, PAUSE),
        posted("/update_weights", 400, {"update_info": None}),
        "update_info",
    ),
    "a draft model": (
        (INIT, PAUSE),
        posted("/start_draft_weight_update", 400),
        "draft",
    ),
}


@pytest.mark.parametrize(("before", "call", "says"), ORDERS.values(), ids=ORDERS)
async def test_what_comes_out_of_order_reaches_no_engine_and_no_resume_opens_it(
    served: Subject, fake: Worker, before: tuple[Step, ...], call: Call, says: str
) -> None:
    await play(before, served, fake)
    calls, stage = list(fake.engine.transfer.calls), (await served.report()).stage

    reply = await send(call, served)

    assert says in reply.json()["message"]
    assert fake.engine.transfer.calls == calls
    assert (await served.report()).stage is stage
    await send(resume_refused(), served)


INIT_AGAIN = posted("/init_weight_transfer_engine", 409, {"init_info": GROUP})


async def test_nothing_opens_or_loads_in_the_midst_of_an_update(
    served: Subject, fake: Worker
) -> None:
    await play((INIT, PAUSE, START, SEND), served, fake)

    await send(resume_refused(message="has not ended"), served)
    for call in (Call("POST /pause", 409), update("step-2", 409), INIT_AGAIN):
        await send(call, served)
    assert (await served.report()).stage is Stage.LOADING
    assert not fake.engine.gate.is_open
    await play((SEND, finish("5"), RESUME, serves("5")), served, fake)


async def test_the_same_part_twice_at_once_is_received_once(served: Subject, fake: Worker) -> None:
    await play((INIT, PAUSE, START), served, fake)
    fake.engine.behaviour = Behaviour(receive_s=0.3)

    other = posted("/update_weights", 503, {"update_info": PART | {"names": ["other"]}})
    replies = await asyncio.gather(send(SEND, served), send(SEND, served), send(other, served))

    assert [reply.status_code for reply in replies] == [200, 200, 503]
    assert fake.engine.transfer.calls.count("update") == 1


async def test_another_start_of_the_engine_is_in_no_group(served: Subject, fake: Worker) -> None:
    await send(INIT, served)
    await fake.restart_engine()
    await settled(fake, lambda report: report.stage is Stage.CLOSED)

    await send(PAUSE, served)
    await send(posted("/start_weight_update", 409), served)


def _beats(epoch: int, target: str | None) -> dict[str, str]:
    named = {} if target is None else {paths.TARGET_HEADER: target}
    return {paths.EPOCH_HEADER: str(epoch)} | named


@pytest.mark.parametrize("call", [INIT, START], ids=["init", "start"])
async def test_a_fleet_that_is_asked_for_a_version_takes_no_weights(
    served: Subject, fake: Worker, call: Call
) -> None:
    await play((INIT, PAUSE), served, fake)
    path = call.request.partition(" ")[2]

    await served.admin.get(paths.STATE_PATH, headers=_beats(3, "step-9"))
    # A stale driver's message has no effect.
    await served.admin.get(paths.STATE_PATH, headers=_beats(2, None))
    refused = await send(posted(path, 409, call.body), served)
    await served.admin.get(paths.STATE_PATH, headers=_beats(3, None))

    assert "target is step-9" in refused.json()["message"]
    await send(call, served)


@pytest.mark.parametrize(
    "call",
    [
        posted("/start_weight_update", 409),
        posted("/update_weights", 409, {"update_info": PART}),
        posted("/finish_weight_update", 409),
        rpc("skyrl_start_weight_update", status=409),
    ],
    ids=lambda call: call.request,
)
async def test_an_update_of_a_worker_that_serves_is_refused_and_a_resume_is_not(
    served: Subject, fake: Worker, call: Call
) -> None:
    await send(INIT, served)

    reply = await send(call, served)

    assert "send pause" in reply.json()["message"]
    await play((RESUME, PAUSE, START, SEND, finish("1"), RESUME), served, fake)


async def test_a_trainer_that_ends_leaves_its_group(served: Subject, fake: Worker) -> None:
    end = posted("/shutdown_weight_transfer_engine", message="Weight transfer shut down")
    await play((INIT, end, end, PAUSE), served, fake)

    assert fake.engine.transfer.calls == ["init", "shutdown", "shutdown"]
    await send(posted("/start_weight_update", 409, message="no transfer group"), served)


async def test_no_trainer_leaves_its_group_in_the_midst_of_an_update(
    served: Subject, fake: Worker
) -> None:
    await play((INIT, PAUSE, START), served, fake)

    await send(posted("/shutdown_weight_transfer_engine", 409), served)

    assert "shutdown" not in fake.engine.transfer.calls
