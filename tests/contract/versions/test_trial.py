"""Requests pass once new weights are loaded, and get their replies once these are proved."""

import asyncio
import time
from pathlib import Path
from typing import Any

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage, Timings
from rlfleet_engine.gate.deadline import OnExpiry
from tests.contract.conftest import settled
from tests.contract.samplers.test_traffic import choice_of
from tests.contract.subject import Subject
from tests.contract.versions.test_proof import announce, behave
from tests.fakes.memory import consume, stamps_of
from tests.fakes.worker import Worker

TOKEN_S = 0.4
VERIFY_S = 2
LATE_S = 10
"""How slow a busy machine may be."""


async def waiting_in_a_change(
    fake: Worker, subject: Subject, **lie: Any
) -> "tuple[asyncio.Task[Any], asyncio.Task[Any]]":
    """Have a request wait at the gate during a reload; return it, and the change."""
    await behave(fake, reload_s=0.5, token_s=TOKEN_S, **lie)
    await subject.ok(paths.PREPARE_PATH, subject.versions.second)
    change = asyncio.create_task(subject.send(paths.UPDATE_WEIGHTS_PATH, subject.versions.second))
    await settled(fake, lambda report: report.stage is Stage.LOADING)
    request = asyncio.create_task(subject.complete(max_tokens=2))
    return request, change


async def on_trial(fake: Worker) -> None:
    """Wait until a request has passed on trial."""
    gate = fake.engine.gate
    async with asyncio.timeout(30):
        while not (gate.is_admitting and gate.in_flight):  # noqa: ASYNC110 - the change does it
            await asyncio.sleep(0.005)


async def timings_of(subject: Subject) -> Timings:
    change = (await subject.report()).last_change
    assert change is not None
    return change.timings


async def test_a_request_is_computed_while_the_proof_is_made(
    fake: Worker, subject: Subject
) -> None:
    await subject.serve(subject.versions.first)
    request, change = await waiting_in_a_change(fake, subject)

    await on_trial(fake)
    assert (await subject.report()).proved is None
    assert not request.done()

    assert (await change).status_code == 200
    reply = await request
    assert reply.headers[paths.VERSION_HEADER] == subject.versions.second
    timings = await timings_of(subject)
    assert timings.withheld_s > TOKEN_S
    assert timings.reload_s < timings.window_s < timings.reload_s + timings.verify_s
    assert fake.engine.gate.is_open


async def test_requests_pass_before_the_core_has_answered_the_resume(
    fake: Worker, subject: Subject
) -> None:
    await subject.serve(subject.versions.first)
    request, change = await waiting_in_a_change(fake, subject, resume_answers_s=1.0)

    assert (await change).status_code == 200
    assert (await request).status_code == 200
    timings = await timings_of(subject)
    assert timings.verify_s > 1.0
    assert timings.window_s < timings.reload_s + timings.pause_s + timings.flush_s + 1.0


async def test_a_proof_that_fails_loses_no_request(fake: Worker, subject: Subject) -> None:
    await subject.serve(subject.versions.first)
    request, change = await waiting_in_a_change(fake, subject, noise=0.9)

    assert (await change).json()["code"] == Code.PROOF_FAILED
    assert fake.engine.gate.totals() == (1, 0)
    assert not fake.engine.gate.is_admitting
    assert not request.done()

    await behave(fake, noise=0.0)
    await subject.serve(subject.versions.first)
    reply = await request
    assert (reply.status_code, choice_of(reply)["finish_reason"]) == (200, "length")
    assert reply.headers[paths.VERSION_HEADER] == subject.versions.first


async def test_a_probe_that_is_asked_again_withholds_no_reply_beyond_the_proof_s_time(
    fake: Worker, subject: Subject
) -> None:
    """Requests that are admitted before its second try may delay it."""
    first, second = subject.versions.first, subject.versions.second
    await subject.serve(first)
    await subject.ok(paths.PREPARE_PATH, second)
    # The first try fails, and the second one takes longer than the proof may.
    await behave(fake, reload_s=0.5, errors=1, token_s=1.5 * VERIFY_S)
    change = asyncio.create_task(
        subject.send(paths.UPDATE_WEIGHTS_PATH, second, timeouts={"verify_s": VERIFY_S})
    )
    await settled(fake, lambda report: report.stage is Stage.LOADING)
    request = asyncio.create_task(subject.complete(max_tokens=1))
    await on_trial(fake)
    begun = time.monotonic()

    assert (await change).json()["code"] == Code.PROOF_FAILED
    assert time.monotonic() - begun < VERIFY_S + LATE_S
    async with asyncio.timeout(30):
        while fake.engine.gate.totals() != (1, 0):  # noqa: ASYNC110 - it waits again
            await asyncio.sleep(0.005)
    assert not request.done()

    await behave(fake, token_s=0)
    await subject.serve(first)
    assert (await request).headers[paths.VERSION_HEADER] == first


async def test_a_change_in_parts_passes_no_request_before_all_are_proved(
    fake: Worker, subject: Subject
) -> None:
    await subject.serve(subject.versions.first)
    await subject.ok(paths.PREPARE_PATH, subject.versions.second)

    await subject.ok(
        paths.UPDATE_WEIGHTS_PATH, subject.versions.second, operation="o", through="Verify"
    )
    request = asyncio.create_task(subject.complete(max_tokens=2))

    await asyncio.sleep(0.1)
    assert not fake.engine.gate.is_admitting
    assert not request.done()
    await subject.ok(paths.UPDATE_WEIGHTS_PATH, subject.versions.second, operation="o")
    assert (await request).status_code == 200
    assert (await timings_of(subject)).withheld_s == 0


async def test_a_worker_that_was_not_in_service_opens_only_when_it_is_proved(
    subject: Subject,
) -> None:
    """It may lack its adapters until then."""
    await subject.serve(subject.versions.first)

    assert (await timings_of(subject)).withheld_s == 0


async def test_a_proof_with_a_trainer_s_prompt_is_made_before_requests_pass(
    weights: Path, subject: Subject
) -> None:
    """The second prompt would wait behind all of them."""
    await subject.serve(subject.versions.first)
    second = weights / subject.versions.second
    held, prompt = consume(str(second), stamps_of(second)).weights, [7, 8, 9, 10]
    announce(second, [held.logprob(prompt, place) for place in (1, 2, 3)])

    await subject.serve(subject.versions.second)

    assert (await timings_of(subject)).withheld_s == 0


async def test_a_proof_that_comes_after_the_gate_s_deadline_has_failed(
    fake: Worker, subject: Subject
) -> None:
    await subject.serve(subject.versions.first)
    _request, change = await waiting_in_a_change(fake, subject)
    await on_trial(fake)
    gate = fake.engine.gate

    # The engine's own end of a change, as by a sidecar that was stopped for a while.
    with gate.locked():
        gate.deadline.set(0, OnExpiry.REFUSE)
        gate.deadline.take()
        gate.fail_trial()
        gate.refuse()
    reply = await change

    assert reply.json()["code"] == Code.PROOF_FAILED
    assert (await subject.report()).proved is None
    assert not gate.is_open
