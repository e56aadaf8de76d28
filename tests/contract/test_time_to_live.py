"""A driver that is gone: its change ends within its time to live and two seconds."""

import asyncio
import time
from typing import Any
from urllib.parse import urlsplit

import pytest

from rlfleet_contract import api
from rlfleet_contract.models import Stage, WorkerReport
from rlfleet_contract.problems import Code
from rlfleet_engine import drain
from tests.contract.conftest import settled
from tests.contract.subject import Subject
from tests.contract.test_lies_alone import UNTIL
from tests.fakes.engine import Behaviour
from tests.fakes.worker import Worker

TTL_S = 0.5
LATE_S = 2.0
FENCE = {"fleet": "f", "pod": "p", "epoch": 3}


async def lead(subject: Subject, stage: Stage, ttl_s: float = TTL_S, **fields: Any) -> None:
    """Lead a change to the second version as far as the stage."""
    await subject.serve(subject.versions.first)
    common = {"operation": "the-change"} | fields
    await subject.ok(api.PREPARE_PATH, subject.versions.second, **common)
    for path in UNTIL[stage]:
        ttl = {"ttl_s": ttl_s} if path == api.PAUSE_PATH else {}
        await subject.ok(path, subject.versions.second, **common, **ttl)


async def ended(fake: Worker, stage: Stage) -> tuple[WorkerReport, float]:
    """Wait, unheard by nobody, until the worker stands there; return how long it took."""
    begun = time.monotonic()
    report = await settled(fake, lambda report: report.stage is stage)
    return report, time.monotonic() - begun


@pytest.mark.parametrize(
    ("stage", "expected", "which"),
    [(Stage.PAUSED, Stage.OPEN, "first"), (Stage.PROVED, Stage.OPEN, "second")],
)
async def test_a_change_that_nobody_leads_ends_safely_within_its_time_to_live(
    fake: Worker, subject: Subject, stage: Stage, expected: Stage, which: str
) -> None:
    await lead(subject, stage)
    waiting = asyncio.create_task(subject.complete(max_tokens=2))

    report, took_s = await ended(fake, expected)

    assert TTL_S / 2 < took_s < TTL_S + LATE_S
    assert report.proved == getattr(subject.versions, which)
    assert (report.paused_s, report.expires_s) == (None, None)
    assert fake.engine.gate.is_open
    assert (await waiting).status_code == 200
    if which == "second":
        assert report.last_change is not None
        assert report.last_change.operation == "the-change"
        assert report.last_change.timings.window_s >= took_s


@pytest.mark.parametrize(("stage", "which"), [(Stage.PAUSED, "first"), (Stage.PROVED, "second")])
async def test_a_pod_that_ends_answers_whom_it_holds_without_waiting_for_its_time_to_live(
    fake: Worker, subject: Subject, stage: Stage, which: str
) -> None:
    await lead(subject, stage, ttl_s=60)
    waiting = asyncio.create_task(subject.complete(max_tokens=2))

    address = urlsplit(fake.engine_url)
    idle = await asyncio.to_thread(
        drain.drain, str(address.hostname), address.port or 0, LATE_S, withdrawn_s=0.2
    )

    assert idle
    assert (await waiting).status_code == 200
    report = await fake.report()
    assert (report.stage, report.proved) == (Stage.OPEN, getattr(subject.versions, which))


async def test_an_engine_with_unproved_weights_that_nobody_leads_is_ended(
    fake: Worker, subject: Subject
) -> None:
    await lead(subject, Stage.LOADED)

    _, took_s = await ended(fake, Stage.DOWN)

    assert took_s < TTL_S + LATE_S
    await fake.restart_engine()
    report, _ = await ended(fake, Stage.CLOSED)
    assert (report.proved, report.expires_s) == (None, None)


async def test_an_engine_in_doubt_that_nobody_leads_is_ended_and_never_resumed(
    fake: Worker, subject: Subject
) -> None:
    await subject.serve(subject.versions.first)
    await subject.ok(api.PREPARE_PATH, subject.versions.second)
    fake.engine.behaviour = Behaviour(wobbles=True)
    await subject.refused(
        Code.PROOF_FAILED, api.UPDATE_WEIGHTS_PATH, subject.versions.second, ttl_s=TTL_S
    )
    served = len(fake.engine.served)

    _, took_s = await ended(fake, Stage.DOWN)

    assert took_s < TTL_S + LATE_S
    assert not fake.engine.gate.is_open
    assert len(fake.engine.served) == served


async def test_every_accepted_command_renews_and_a_refused_one_does_not(
    fake: Worker, subject: Subject
) -> None:
    await lead(subject, Stage.PAUSED)
    for _time in range(4):
        await asyncio.sleep(TTL_S * 0.6)
        await subject.ok(api.FLUSH_PATH, subject.versions.second, operation="the-change")
    assert (await fake.report()).stage is Stage.PAUSED

    refused = asyncio.create_task(_keep_asking(subject))
    _, took_s = await ended(fake, Stage.OPEN)
    refused.cancel()

    assert took_s < TTL_S + LATE_S


async def _keep_asking(subject: Subject) -> None:
    while True:
        await subject.send(api.VERIFY_PATH, subject.versions.second, operation="the-change")
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("epoch", "stage"),
    [("3", Stage.PAUSED), ("4", Stage.PAUSED), ("2", Stage.OPEN), (None, Stage.OPEN)],
    ids=["the driver's", "a later one", "one that is over", "none"],
)
async def test_a_heartbeat_of_the_highest_epoch_keeps_a_change_and_nothing_else_does(
    fake: Worker, subject: Subject, epoch: str | None, stage: Stage
) -> None:
    await lead(subject, Stage.PAUSED)
    pause = {"ttl_s": TTL_S, "operation": "led", "fence": FENCE | {"sequence": 1}}
    await subject.ok(api.PAUSE_PATH, subject.versions.second, **pause)
    headers = {} if epoch is None else {api.EPOCH_HEADER: epoch}

    begun = time.monotonic()
    while time.monotonic() < begun + TTL_S * 3 and not fake.engine.gate.is_open:
        await subject.admin.get(api.STATE_PATH, headers=headers)
        await asyncio.sleep(0.05)

    report = await fake.report()
    assert (report.stage, report.epoch) == (stage, max(3, int(epoch or 0)))


async def test_a_heartbeat_does_not_keep_what_a_caller_without_epochs_began(
    fake: Worker, subject: Subject
) -> None:
    await lead(subject, Stage.PAUSED)

    begun = time.monotonic()
    while (await beat(subject)).stage is Stage.PAUSED:
        await asyncio.sleep(0.05)
        assert time.monotonic() < begun + TTL_S + LATE_S


async def beat(subject: Subject) -> WorkerReport:
    reply = await subject.admin.get(api.STATE_PATH, headers={api.EPOCH_HEADER: "3"})
    return WorkerReport.model_validate_json(reply.content)


async def test_nothing_runs_out_while_a_command_is_carried_out(
    fake: Worker, subject: Subject
) -> None:
    await subject.serve(subject.versions.first)
    await subject.ok(api.PREPARE_PATH, subject.versions.second)
    fake.engine.behaviour = Behaviour(pause_s=TTL_S * 2, reload_s=TTL_S * 2)

    report = await subject.ok(api.UPDATE_WEIGHTS_PATH, subject.versions.second, ttl_s=TTL_S / 2)

    assert (report.stage, report.proved) == (Stage.OPEN, subject.versions.second)


async def test_a_restarted_sidecar_goes_on_counting(fake: Worker, subject: Subject) -> None:
    await lead(subject, Stage.PAUSED, ttl_s=1.5)
    await asyncio.sleep(0.6)
    await fake.stop_sidecar()
    await fake.start_sidecar()

    restarted = await settled(fake, lambda report: report.stage is Stage.PAUSED)
    assert restarted.expires_s is not None
    assert restarted.paused_s is not None
    assert restarted.expires_s < 1.0 < restarted.paused_s + restarted.expires_s < 2.0
    _, took_s = await ended(fake, Stage.OPEN)
    assert took_s < 1.0 + LATE_S


@pytest.mark.parametrize("stage", [Stage.PAUSED, Stage.PROVED])
async def test_a_sidecar_that_starts_after_the_time_to_live_ends_the_change_at_once(
    fake: Worker, subject: Subject, stage: Stage
) -> None:
    await lead(subject, stage, ttl_s=0.2)
    await fake.stop_sidecar()
    await asyncio.sleep(0.3)
    await fake.start_sidecar()

    _, took_s = await ended(fake, Stage.OPEN)
    assert took_s < 1.0


async def test_a_heartbeat_outlives_a_restart(fake: Worker, subject: Subject) -> None:
    """What is written down is at most a quarter of the time to live behind."""
    await lead(subject, Stage.PAUSED)
    pause = {"ttl_s": 2, "operation": "led", "fence": FENCE | {"sequence": 1}}
    await subject.ok(api.PAUSE_PATH, subject.versions.second, **pause)
    await asyncio.sleep(1)
    await beat(subject)
    await fake.stop_sidecar()
    await fake.start_sidecar()

    report = await settled(fake, lambda report: report.stage is Stage.PAUSED)
    assert report.expires_s is not None
    assert report.expires_s > 1.3


async def test_a_time_to_live_has_bounds(subject: Subject) -> None:
    for ttl_s in (0, -1, api.MAX_TTL_S + 1):
        reply = await subject.send(api.PAUSE_PATH, "step-1", ttl_s=ttl_s)
        assert (reply.status_code, reply.json()["code"]) == (400, Code.INVALID_REQUEST)
        assert "ttl_s" in reply.json()["message"]


async def test_an_epoch_that_is_no_number_is_refused(subject: Subject) -> None:
    for epoch in ("-1", "x", ""):
        reply = await subject.admin.get(api.STATE_PATH, headers={api.EPOCH_HEADER: epoch})
        assert (reply.status_code, reply.json()["code"]) == (400, Code.INVALID_REQUEST)
