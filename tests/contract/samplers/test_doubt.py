"""Requests for an engine that stays in doubt are rejected after a while."""

import asyncio
from dataclasses import replace

import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from tests.contract.samplers.test_traffic import choice_of, until_in_flight
from tests.contract.subject import Subject
from tests.fakes.worker import Worker

PATIENCE_S = 0.3


@pytest.fixture
def identity(request: pytest.FixtureRequest) -> dict[str, str]:
    return {"doubt_wait_s": str(getattr(request, "param", PATIENCE_S))}


async def fail(fake: Worker, subject: Subject) -> None:
    """Bring the engine in doubt, with requests frozen in it."""
    await subject.ok(paths.PREPARE_PATH, subject.versions.second)
    fake.engine.behaviour = replace(fake.engine.behaviour, reload_fails=True)
    await subject.refused(Code.RELOAD_FAILED, paths.UPDATE_WEIGHTS_PATH, subject.versions.second)
    fake.engine.behaviour = replace(fake.engine.behaviour, reload_fails=False)


async def test_requests_for_an_engine_that_stays_in_doubt_are_rejected(
    fake: Worker, served: Subject
) -> None:
    frozen = asyncio.create_task(served.complete(max_tokens=900, ignore_eos=True))
    await until_in_flight(served, is_any=True)
    await fail(fake, served)

    # One that is held at the gate, and one that comes when the worker is given up.
    refused = [await served.complete(max_tokens=2), await served.complete(max_tokens=2)]

    for reply in refused:
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
        assert "another worker" in reply.json()["error"]["message"]
    assert choice_of(await frozen)["finish_reason"] == "abort"
    assert fake.engine.gate.totals() == (0, 0)


@pytest.mark.parametrize("identity", [60], indirect=True)
async def test_a_terminating_pod_rejects_requests_for_its_engine_in_doubt(
    fake: Worker, served: Subject
) -> None:
    await fail(fake, served)
    held = asyncio.create_task(served.complete(max_tokens=2))
    await until_in_flight(served, is_any=True)

    fake.engine.gate.drain()

    assert (await held).status_code == 503


async def test_answers_withheld_for_an_abandoned_proof_end(fake: Worker, served: Subject) -> None:
    frozen = asyncio.create_task(served.complete(max_tokens=900, ignore_eos=True))
    await until_in_flight(served, is_any=True)
    for path in (paths.PREPARE_PATH, paths.PAUSE_PATH, paths.RELOAD_PATH):
        await served.ok(path, served.versions.second)
    await fake.stop_sidecar()
    # What one leaves that was killed when it had begun its proof.
    fake.engine.gate.begin_trial(served.versions.second)

    await fake.start_sidecar()

    assert choice_of(await frozen)["finish_reason"] == "abort"


async def test_a_good_version_ends_that(fake: Worker, served: Subject) -> None:
    await fail(fake, served)
    assert (await served.complete(max_tokens=2)).status_code == 503

    await served.serve(served.versions.second)

    reply = await served.complete(max_tokens=2)
    assert reply.headers[paths.VERSION_HEADER] == served.versions.second
    assert choice_of(reply)["finish_reason"] == "length"


@pytest.mark.parametrize("identity", [60], indirect=True)
async def test_a_request_for_a_version_that_comes_in_time_is_answered(
    fake: Worker, served: Subject
) -> None:
    await fail(fake, served)
    held = asyncio.create_task(served.complete(max_tokens=2))

    await served.serve(served.versions.first)

    assert choice_of(await held)["finish_reason"] == "length"


async def test_a_pause_rejects_no_request(served: Subject) -> None:
    first = served.versions.first
    await served.ok(paths.PAUSE_PATH, first, operation="long")
    held = asyncio.create_task(served.complete(max_tokens=2))

    await asyncio.sleep(3 * PATIENCE_S)

    assert not held.done()
    await served.ok(paths.RESUME_PATH, first, operation="long")
    assert choice_of(await held)["finish_reason"] == "length"
