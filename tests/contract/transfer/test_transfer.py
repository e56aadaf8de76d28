"""Weights that a trainer sends into vLLM's own engine: what is served, and what is claimed of it.

The fake engine answers as vLLM 0.32 does; the tensors themselves go from GPU to GPU.
"""

from dataclasses import replace

import pytest

from rlfleet_contract.worker.proof import Evidence
from rlfleet_contract.worker.report import Stage
from tests.contract.subject import Subject
from tests.contract.transcripts import (
    ANY,
    HELD,
    PAUSE,
    RESUME,
    RUNS,
    Call,
    Step,
    dynamo,
    play,
    send,
    serves,
)
from tests.contract.transfers import (
    DYNAMO_INIT,
    GROUP,
    INIT,
    PART,
    SEND,
    START,
    UNPAUSED,
    finish,
    posted,
    refit,
    rpc,
)
from tests.fakes.behaviour import Behaviour
from tests.fakes.worker import Worker

GOOD: dict[str, tuple[Step, ...]] = {
    "TRL: group, pause, start, update, finish, resume": (
        Call("GET /health"),
        Call("GET /v1/models", fields={"data": ANY}),
        Call("GET /get_world_size", fields={"world_size": 1}),
        INIT,
        Call("POST /pause?mode=keep"),
        START,
        SEND,
        finish(),
        RESUME,
        RUNS,
    ),
    "vLLM's own clients: the weights have a name": (
        INIT,
        PAUSE,
        START,
        SEND,
        finish("12"),
        HELD,
        RESUME,
        RUNS,
        serves("12"),
    ),
    "several parts, and no name of their own": (
        INIT,
        PAUSE,
        START,
        SEND,
        SEND,
        SEND,
        finish(),
        RESUME,
        RUNS,
    ),
    "SkyRL: its worker extension's methods": (
        Call("GET /get_world_size", fields={"world_size": 1}, body={}),
        INIT,
        PAUSE,
        rpc("skyrl_start_weight_update", {"is_checkpoint_format": True}),
        rpc("update_weights_nccl", {"update_info": PART}),
        rpc("update_weights_nccl", {"update_info": PART}),
        HELD,
        rpc("skyrl_finish_weight_update"),
        HELD,
        RESUME,
        RUNS,
    ),
    "a group serves many updates": (
        INIT,
        PAUSE,
        START,
        SEND,
        finish("1"),
        RESUME,
        PAUSE,
        START,
        SEND,
        finish("2"),
        RESUME,
        serves("2"),
    ),
    "Dynamo's native sidecar": (
        dynamo("update/init_weight_transfer_engine", body={"init_info": GROUP}),
        PAUSE,
        dynamo("update/start_weight_update"),
        dynamo("update/update_weights", body={"update_info": PART}),
        dynamo("update/finish_weight_update", body={"weight_version": "7"}, weight_version="7"),
        RESUME,
        dynamo("get_weight_version", version="7", version_declared=True),
    ),
    "Dynamo's Python worker: the engine's methods by name": (
        DYNAMO_INIT,
        PAUSE,
        *refit(),
        HELD,
        RESUME,
        RUNS,
    ),
    "NeMo-RL: it does not pause for its refit, and empties the caches after it": (
        DYNAMO_INIT,
        *[*refit(**UNPAUSED), RUNS] * 2,
        dynamo("pause_generation", body={"mode": "wait", "clear_cache": True}),
        dynamo("resume_generation"),
        RUNS,
    ),
}


@pytest.mark.parametrize("steps", GOOD.values(), ids=GOOD)
async def test_what_is_sent_is_served(
    served: Subject, fake: Worker, steps: tuple[Step, ...]
) -> None:
    before = fake.engine.weights.exact

    await play(steps, served, fake)

    report = await served.report()
    assert fake.engine.weights.exact != before
    assert report.stage is Stage.OPEN
    assert report.failure is None


async def test_of_weights_that_were_sent_only_what_was_shown_is_claimed(
    served: Subject, fake: Worker
) -> None:
    await play((INIT, PAUSE, START, SEND, finish("step-1")), served, fake)
    report = await served.report()

    # Not the checkpoint of that name, which this worker had before: they were not compared.
    assert report.proved == "sent-step-1"
    assert report.proof is not None
    assert report.proof.verified_by == (Evidence.PROBE,)
    assert report.proof.tensors is None
    assert report.last_change is None or report.last_change.version == "step-1"


async def test_an_engine_that_keeps_old_weights_when_new_ones_are_sent_forms_no_group(
    served: Subject, fake: Worker
) -> None:
    fake.engine.behaviour = Behaviour(unsendable="its sinks stay as they were")
    before = fake.engine.weights.exact

    told = (
        "vLLM 0.32.0 (cpu) with FakeForCausalLM does not support weight transfer: its sinks"
        " stay as they were; write checkpoints"
    )
    await send(replace(INIT, status=422, fields={"message": told}), served)

    report = await served.report()
    assert report.stage is Stage.OPEN
    assert fake.engine.weights.exact == before
    await play((PAUSE, replace(START, status=409, fields={})), served, fake)


async def test_a_version_without_a_name_is_like_no_other(served: Subject, fake: Worker) -> None:
    proved = set()
    for _time in range(2):
        await play((INIT, PAUSE, START, SEND, finish(), RESUME), served, fake)
        proved.add((await served.report()).proved)

    assert len(proved) == 2
    assert all(version is not None and version.startswith("sent-") for version in proved)


@pytest.mark.parametrize("named", ["../x", "a b", "x" * 130])
async def test_a_name_that_is_none_ends_nothing(served: Subject, fake: Worker, named: str) -> None:
    await play((INIT, PAUSE, START, SEND), served, fake)

    await send(posted("/finish_weight_update", 400, {"weight_version": named}), served)
    assert (await served.report()).stage is Stage.LOADING

    await play((finish("good"), RESUME, serves("good")), served, fake)


async def test_caches_that_old_weights_filled_are_emptied(served: Subject, fake: Worker) -> None:
    flushes = fake.engine.flushes
    pause = Call("POST /pause?mode=keep&clear_cache=true")

    await play((INIT, pause, START, SEND, finish()), served, fake)
    assert fake.engine.flushes == flushes + 1
    await play((RESUME, PAUSE, START, SEND, finish()), served, fake)
    assert fake.engine.flushes == flushes + 1
