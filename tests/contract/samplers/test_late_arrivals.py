"""Requests that passed the gate, and reach vLLM's core only after it has paused."""

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest

from rlfleet_contract import paths
from tests.contract.samplers.test_traffic import choice_of
from tests.contract.subject import Subject
from tests.fakes.behaviour import Behaviour
from tests.fakes.worker import Worker


async def until_passed(worker: Worker) -> None:
    """Wait until a request has passed the gate."""
    while not worker.engine.gate.in_flight:  # noqa: ASYNC110 - it is the engine's
        await asyncio.sleep(0.005)


async def sent(
    subject: Subject, path: str, may_end: asyncio.Event, **fields: object
) -> httpx.Response:
    """Send a request whose body ends only when it may."""
    content = json.dumps({"model": "fake", "prompt": "a"} | fields).encode()

    async def body() -> AsyncIterator[bytes]:
        yield content[:-1]
        await may_end.wait()
        yield content[-1:]

    headers = {"content-type": "application/json"}
    return await subject.engine.post(path, content=body(), headers=headers)


@pytest.mark.parametrize(("mode", "reason"), [("Wait", "length"), ("Abort", "abort")])
async def test_they_end_before_the_change(
    fake: Worker, served: Subject, mode: str, reason: str
) -> None:
    first, second = served.versions.first, served.versions.second
    await served.serve(first)
    await served.ok(paths.PREPARE_PATH, second)
    fake.engine.behaviour = Behaviour(late=1)
    request = asyncio.create_task(served.complete(max_tokens=4))
    await until_passed(fake)

    await served.ok(paths.UPDATE_WEIGHTS_PATH, second, mode=mode)

    reply = await request
    assert choice_of(reply)["finish_reason"] == reason
    named = {reply.headers[name] for name in (paths.VERSION_HEADER, paths.END_VERSION_HEADER)}
    assert named == {first}
    assert (await served.report()).proved == second


@pytest.mark.parametrize("mode", ["Wait", "Abort"])
async def test_one_whose_body_does_not_come_holds_no_change_up_for_long(
    fake: Worker, served: Subject, mode: str
) -> None:
    await served.serve(served.versions.first)
    may_end = asyncio.Event()
    request = asyncio.create_task(sent(served, "/v1/completions", may_end, max_tokens=4))
    await until_passed(fake)

    await served.ok(paths.PAUSE_PATH, served.versions.second, mode=mode)

    assert fake.engine.paused is not None
    may_end.set()
    await served.ok(paths.RESUME_PATH, served.versions.first)
    assert choice_of(await request)["finish_reason"] == "length"


async def test_a_request_that_computes_nothing_holds_no_change_up(
    fake: Worker, served: Subject
) -> None:
    await served.serve(served.versions.first)
    before, may_end = fake.engine.pauses, asyncio.Event()
    request = asyncio.create_task(sent(served, "/tokenize", may_end))
    await asyncio.sleep(0.2)

    await served.ok(paths.PAUSE_PATH, served.versions.second, mode="Wait")

    assert not request.done()
    assert fake.engine.pauses == before + 1
    may_end.set()
    assert (await request).status_code == 200
    await served.ok(paths.RESUME_PATH, served.versions.first)
