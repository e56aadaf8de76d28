"""AReaL's way of updating weights by a disk, as its remote_inf_engine.py calls its servers."""

import asyncio

import httpx
import pytest

from rlfleet_contract.worker.problems import Code
from tests.contract.subject import Subject
from tests.fakes.behaviour import Behaviour
from tests.fakes.worker import Worker

PAUSE, UPDATE, CONTINUE = (
    "/areal_pause_generation",
    "/areal_update_weights",
    "/areal_continue_generation",
)


@pytest.fixture
async def paused(subject: Subject) -> Subject:
    """A worker that serves the first version and was paused by AReaL."""
    await subject.serve("step-1")
    reply = await subject.admin.post(PAUSE, json={})
    assert reply.json()["success"] is True
    return subject


async def update(subject: Subject, version: str) -> httpx.Response:
    return await subject.admin.post(UPDATE, json={"model_path": f"{subject.weights}/{version}"})


async def test_what_runs_is_aborted_and_what_comes_waits_for_the_new_weights(
    fake: Worker, subject: Subject
) -> None:
    await subject.serve("step-1")
    fake.engine.behaviour = Behaviour(token_s=0.05)
    running = asyncio.create_task(subject.complete(max_tokens=200))
    await asyncio.sleep(0.3)

    await subject.admin.post(PAUSE, json={})
    aborted = (await running).json()["choices"][0]
    waiting = asyncio.create_task(subject.complete(max_tokens=2))
    updated = await update(subject, "step-2")
    assert not waiting.done()
    continued = await subject.admin.post(CONTINUE, json={})

    assert aborted["finish_reason"] == "abort"
    assert updated.json()["weight_version"] == "step-2"
    assert continued.json() == {"success": True, "message": "Generation continued"}
    assert (await waiting).headers["x-rlfleet-version"] == "step-2"


async def test_a_bad_version_is_an_error_and_is_not_continued_with(
    fake: Worker, paused: Subject
) -> None:
    updated = await update(paused, "step-truncated")
    continued = await paused.admin.post(CONTINUE, json={})

    assert updated.status_code == 422
    assert continued.status_code == 409
    assert not fake.engine.gate.is_open
    assert (await update(paused, "step-2")).status_code == 200
    assert (await paused.admin.post(CONTINUE, json={})).status_code == 200
    assert (await paused.complete()).headers["x-rlfleet-version"] == "step-2"


async def test_a_group_of_gpus_is_refused_with_the_way_out(paused: Subject) -> None:
    group = {"master_address": "10.0.0.9", "master_port": "29500", "rank_offset": 1}

    reply = await paused.admin.post("/areal_init_weights_update_group", json=group)

    assert (reply.status_code, reply.json()["code"]) == (400, Code.INVALID_REQUEST)
    assert "actor.weight_update_mode=disk" in reply.json()["message"]
