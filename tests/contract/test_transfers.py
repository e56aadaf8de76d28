"""Weights that a trainer sends into vLLM's own engine: order, refusals, what is proved.

The fake engine answers as vLLM 0.32 does; the tensors themselves go from GPU to GPU.
"""

import asyncio
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from rlfleet_contract import api
from rlfleet_contract.models import Stage
from rlfleet_contract.proof import Evidence
from tests.contract.conftest import ended, settled
from tests.contract.subject import Subject
from tests.contract.transcripts import (
    ANY,
    HELD,
    PAUSE,
    RESUME,
    RUNS,
    Call,
    Engine,
    Step,
    dynamo,
    play,
    resume_refused,
    send,
    serves,
    update,
)
from tests.fakes.engine import Behaviour
from tests.fakes.worker import Worker
from tests.patience import Signs, seconds_until, undisturbed

GROUP = {"master_address": "10.0.0.9", "master_port": 29500, "rank_offset": 1, "world_size": 2}
PART = {"names": ["lm_head.weight"], "dtype_names": ["bfloat16"], "shapes": [[32, 16]]}
TTL_S = 0.6
LATE_S = 2.0
SHORT_S = 0.3


def posted(path: str, status: int = 200, body: Any = None, **fields: Any) -> Call:
    wrong = {"status": "error"} if status >= 400 else {}
    return Call(f"POST {path}", status, wrong | fields, body)


INIT = posted("/init_weight_transfer_engine", body={"init_info": GROUP})
START = posted("/start_weight_update", body={"is_checkpoint_format": True})
SEND = posted("/update_weights", body={"update_info": PART}, message="Weights updated")


def finish(named: str | None = None) -> Call:
    body = None if named is None else {"weight_version": named}
    fields: dict[str, Any] = {"verified_by": ["Probe"]} | (
        {} if named is None else {"weight_version": named}
    )
    return posted("/finish_weight_update", body=body, **fields)


def rpc(method: str, kwargs: dict[str, Any] | None = None, status: int = 200) -> Call:
    """Make a call of a method of the engine's workers, as SkyRL does."""
    fields = {"results": [None]} if status == 200 else {}
    body = {"method": method} | ({} if kwargs is None else {"kwargs": kwargs})
    return posted("/collective_rpc", status, body, **fields)


DYNAMO_INIT = dynamo(
    "init_weights_update_group",
    body={"engine_rpc": "init_weight_transfer_engine", "init_info": GROUP},
)
UNPAUSED = {"allow_unpaused": True, "reset_prefix_cache": False}
"""What NeMo-RL sends with each of its three posts."""


def refit(**also: Any) -> tuple[Call, ...]:
    """Make Dynamo's three posts of an update."""
    return tuple(
        dynamo("update_weights_from_distributed", body={"engine_rpc": name, **more, **also})
        for name, more in (
            ("start_weight_update", {"is_checkpoint_format": True}),
            ("update_weights", {"update_info": PART | {"packed": True}}),
            ("finish_weight_update", {}),
        )
    )


@pytest.fixture
async def served(subject: Subject, fake: Worker, weights: Path) -> Subject:
    """A worker that serves the first version, and a trainer that sends the second."""
    await subject.serve("step-1")
    fake.engine.transfer.arriving = weights / "step-2"
    return subject


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

    # Not the checkpoint of that name, which this worker held before: nobody compared them.
    assert report.proved == "sent-step-1"
    assert report.proof is not None
    assert report.proof.verified_by == (Evidence.PROBE,)
    assert report.proof.checkpoint is None
    assert report.last_change is None or report.last_change.version == "step-1"


async def test_a_name_that_nobody_gave_is_like_no_other(served: Subject, fake: Worker) -> None:
    proved = set()
    for _time in range(2):
        await play((INIT, PAUSE, START, SEND, finish(), RESUME), served, fake)
        proved.add((await served.report()).proved)

    assert len(proved) == 2
    assert all(version is not None and version.startswith("sent-") for version in proved)


async def test_caches_that_old_weights_filled_are_emptied(served: Subject, fake: Worker) -> None:
    flushes = fake.engine.flushes
    pause = Call("POST /pause?mode=keep&clear_cache=true")

    await play((INIT, pause, START, SEND, finish()), served, fake)
    assert fake.engine.flushes == flushes + 1
    await play((RESUME, PAUSE, START, SEND, finish()), served, fake)
    assert fake.engine.flushes == flushes + 1


ORDERS: dict[str, tuple[tuple[Step, ...], Call, str]] = {
    "start before the group": (
        (PAUSE,),
        posted("/start_weight_update", 409),
        "init_weight_transfer_engine first",
    ),
    "start before the pause": (
        (INIT,),
        posted("/start_weight_update", 409),
        "send pause before",
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
        "send update_weights first",
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
        "is none of",
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


async def test_requests_freeze_during_a_refit_that_nobody_paused_for(
    served: Subject, fake: Worker
) -> None:
    start, part, finish = refit(**UNPAUSED)
    flushes = fake.engine.flushes
    await play((DYNAMO_INIT, start), served, fake)
    assert not fake.engine.gate.is_open
    asked = asyncio.create_task(served.complete(max_tokens=2))
    await play((HELD, part, HELD), served, fake)
    assert not asked.done()

    await send(finish, served)

    assert (await asked).status_code == 200
    assert (await served.report()).stage is Stage.OPEN
    assert fake.engine.flushes == flushes, "its trainer empties the caches itself"


async def test_a_refit_that_cannot_begin_leaves_its_worker_serving(
    served: Subject, fake: Worker
) -> None:
    start, _part, finish = refit(**UNPAUSED)
    for first in (start, finish):
        body = first.body
        refused = dynamo("update_weights_from_distributed", 409, body, message="first")
        await send(refused, served)
    assert fake.engine.gate.is_open
    assert (await served.report()).stage is Stage.OPEN


async def test_a_refit_whose_part_fails_is_doubt_and_does_not_open(
    served: Subject, fake: Worker
) -> None:
    start, part, finish = refit(**UNPAUSED)
    await play((DYNAMO_INIT, start), served, fake)
    fake.engine.behaviour = Behaviour(receive_fails=True)

    for call, status in ((part, 422), (finish, 409)):
        await send(dynamo("update_weights_from_distributed", status, call.body), served)

    assert (await served.report()).stage is Stage.DOUBT
    assert not fake.engine.gate.is_open


@pytest.mark.parametrize("named", ["../x", "a b", "x" * 130])
async def test_a_name_that_is_none_ends_nothing(served: Subject, fake: Worker, named: str) -> None:
    await play((INIT, PAUSE, START, SEND), served, fake)

    await send(posted("/finish_weight_update", 400, {"weight_version": named}), served)
    assert (await served.report()).stage is Stage.LOADING

    await play((finish("good"), RESUME, serves("good")), served, fake)


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
        assert f"not done after {SHORT_S:g} s" in told
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
        assert (await served.admin.post(api.PREPARE_PATH, json=command)).status_code == 200

        async def is_down() -> bool:
            # It drives, as far as it knows: it commands, and gives signs of life.
            fence = {"fleet": "f", "pod": "p", "epoch": 7, "sequence": next(numbers)}
            sent = await served.admin.post(api.UPDATE_WEIGHTS_PATH, json=command | {"fence": fence})
            assert sent.status_code in {409, 503}
            await served.admin.get(api.STATE_PATH, headers=_beats(7, "step-2"))
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
    await send(resume_refused("EngineInDoubt", "nobody knows"), served)
    await play((PAUSE, update("step-2"), RESUME, serves("step-2")), served, fake)


async def test_an_engine_that_does_not_answer_after_it_is_in_doubt(
    served: Subject, fake: Worker
) -> None:
    await play((INIT, PAUSE, START, SEND, Engine(Behaviour(nan_logprobs=True))), served, fake)

    await send(posted("/finish_weight_update", 422, code="ProofFailed"), served)

    assert (await served.report()).stage is Stage.DOUBT
    await send(resume_refused("EngineInDoubt"), served)


async def test_nothing_opens_or_loads_in_the_midst_of_an_update(
    served: Subject, fake: Worker
) -> None:
    await play((INIT, PAUSE, START, SEND), served, fake)

    await send(resume_refused(message="was not seen to end"), served)
    for call in (Call("POST /pause", 409), update("step-2", 409), INIT_AGAIN):
        await send(call, served)
    assert (await served.report()).stage is Stage.LOADING
    assert not fake.engine.gate.is_open
    await play((SEND, finish("5"), RESUME, serves("5")), served, fake)


INIT_AGAIN = posted("/init_weight_transfer_engine", 409, {"init_info": GROUP})


async def test_the_same_part_twice_at_once_is_received_once(served: Subject, fake: Worker) -> None:
    await play((INIT, PAUSE, START), served, fake)
    fake.engine.behaviour = Behaviour(receive_s=SHORT_S)

    other = posted("/update_weights", 503, {"update_info": PART | {"names": ["other"]}})
    replies = await asyncio.gather(send(SEND, served), send(SEND, served), send(other, served))

    assert [reply.status_code for reply in replies] == [200, 200, 503]
    assert fake.engine.transfer.calls.count("update") == 1


async def test_a_sidecar_that_dies_in_an_update_comes_back_in_doubt(
    served: Subject, fake: Worker
) -> None:
    await play((INIT, PAUSE, START, SEND), served, fake)

    await fake.stop_sidecar()
    await fake.start_sidecar()
    report = await settled(fake, lambda report: report.stage is not Stage.DOWN)

    assert report.stage is Stage.DOUBT
    await send(resume_refused("EngineInDoubt", "was not seen to end"), served)
    await send(posted("/finish_weight_update", 409, code="EngineInDoubt"), served)


async def test_another_start_of_the_engine_is_in_no_group(served: Subject, fake: Worker) -> None:
    await send(INIT, served)
    await fake.restart_engine()
    await settled(fake, lambda report: report.stage is Stage.CLOSED)

    await send(PAUSE, served)
    await send(posted("/start_weight_update", 409), served)


def _beats(epoch: int, target: str | None) -> dict[str, str]:
    named = {} if target is None else {api.TARGET_HEADER: target}
    return {api.EPOCH_HEADER: str(epoch)} | named


@pytest.mark.parametrize("call", [INIT, START], ids=["init", "start"])
async def test_a_fleet_that_is_asked_for_a_version_takes_no_weights(
    served: Subject, fake: Worker, call: Call
) -> None:
    await play((INIT, PAUSE), served, fake)
    path = call.request.partition(" ")[2]

    await served.admin.get(api.STATE_PATH, headers=_beats(3, "step-9"))
    # What a driver that leads no more says is no news.
    await served.admin.get(api.STATE_PATH, headers=_beats(2, None))
    refused = await send(posted(path, 409, call.body), served)
    await served.admin.get(api.STATE_PATH, headers=_beats(3, None))

    assert "asked for step-9" in refused.json()["message"]
    await send(call, served)
