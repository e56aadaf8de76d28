"""A driver that is gone: its change ends within its time to live and two seconds."""

import asyncio
import time
from dataclasses import replace
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage, WorkerReport
from rlfleet_engine import drain
from tests.contract.conftest import ended, settled
from tests.contract.faults.test_sidecar_restarts import UNTIL
from tests.contract.subject import Subject
from tests.fakes.behaviour import Behaviour
from tests.fakes.worker import Worker
from tests.patience import Signs, given_up, seconds_until, undisturbed

TTL_S = 0.5
LATE_S = 2.0
FENCE = {"fleet": "f", "pod": "p"}
EPOCH = 3
LATER = 10
"""How far the epoch of another try is from the one before."""


async def lead(subject: Subject, stage: Stage, ttl_s: float = TTL_S, **fields: Any) -> None:
    """Lead a change to the second version as far as the stage."""
    await subject.serve(subject.versions.first)
    common = {"operation": "the-change"} | fields
    await subject.ok(paths.PREPARE_PATH, subject.versions.second, **common)
    for path in UNTIL[stage]:
        ttl = {"ttl_s": ttl_s} if path == paths.PAUSE_PATH else {}
        await subject.ok(path, subject.versions.second, **common, **ttl)


async def pause_led(subject: Subject, epoch: int, ttl_s: float = TTL_S) -> None:
    """Pause on the way to the second version, as a driver with this epoch."""
    fields = {"ttl_s": ttl_s, "operation": "led", "fence": FENCE | {"epoch": epoch, "sequence": 1}}
    await subject.ok(paths.PAUSE_PATH, subject.versions.second, **fields)


@pytest.mark.parametrize(
    ("stage", "expected", "which"),
    [(Stage.PAUSED, Stage.OPEN, "first"), (Stage.PROVED, Stage.OPEN, "second")],
)
async def test_a_change_without_a_driver_ends_safely_within_its_ttl(
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
        assert report.last_change.timings.window_s > TTL_S / 2


@pytest.mark.parametrize(("stage", "which"), [(Stage.PAUSED, "first"), (Stage.PROVED, "second")])
async def test_a_terminating_pod_answers_waiting_requests_before_its_ttl(
    fake: Worker, subject: Subject, stage: Stage, which: str
) -> None:
    await lead(subject, stage, ttl_s=60)
    waiting = asyncio.create_task(subject.complete(max_tokens=2))

    address = urlsplit(fake.engine_url)
    idle = await asyncio.to_thread(
        drain.drain, str(address.hostname), address.port or 0, 30, withdrawn_s=0.2
    )

    assert idle
    assert (await waiting).status_code == 200
    report = await fake.report()
    assert (report.stage, report.proved) == (Stage.OPEN, getattr(subject.versions, which))


async def test_an_engine_with_unproved_weights_without_a_driver_is_ended(
    fake: Worker, subject: Subject
) -> None:
    await lead(subject, Stage.LOADED)

    _, took_s = await ended(fake, Stage.DOWN)

    assert took_s < TTL_S + LATE_S
    await fake.restart_engine()
    report, _ = await ended(fake, Stage.CLOSED)
    assert (report.proved, report.expires_s) == (None, None)


async def test_an_engine_in_doubt_without_a_driver_is_ended_and_never_resumed(
    fake: Worker, subject: Subject
) -> None:
    await subject.serve(subject.versions.first)
    await subject.ok(paths.PREPARE_PATH, subject.versions.second)
    fake.engine.behaviour = Behaviour(wobbles=True)
    await subject.refused(
        Code.PROOF_FAILED, paths.UPDATE_WEIGHTS_PATH, subject.versions.second, ttl_s=TTL_S
    )
    served = len(fake.engine.served)

    _, took_s = await ended(fake, Stage.DOWN)

    assert took_s < TTL_S + LATE_S
    assert not fake.engine.gate.is_open
    assert len(fake.engine.served) == served


async def test_every_accepted_command_renews_and_a_refused_one_does_not(
    fake: Worker, subject: Subject
) -> None:
    change = {"operation": "the-change"}

    async def renewed() -> tuple[set[int], Stage] | None:
        await lead(subject, Stage.PAUSED, ttl_s=60)
        signs = Signs()
        again = subject.send(paths.PAUSE_PATH, subject.versions.second, ttl_s=TTL_S, **change)
        replies = [await signs.give(again)]
        for _time in range(4):
            await asyncio.sleep(TTL_S * 0.6)
            flush = subject.send(paths.FLUSH_PATH, subject.versions.second, **change)
            replies.append(await signs.give(flush))
        report = await signs.give(fake.report())
        found = {reply.status_code for reply in replies}, report.stage
        return found if signs.longest_s < TTL_S else None

    assert await undisturbed(renewed) == ({200}, Stage.PAUSED)

    refused = asyncio.create_task(_keep_asking(subject))
    _, took_s = await ended(fake, Stage.OPEN)
    await given_up(refused)

    assert took_s < TTL_S + LATE_S


async def _keep_asking(subject: Subject) -> None:
    while True:
        await subject.send(paths.VERIFY_PATH, subject.versions.second, operation="the-change")
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("later", "stage"),
    [(0, Stage.PAUSED), (1, Stage.PAUSED), (-1, Stage.OPEN), (None, Stage.OPEN)],
    ids=["the driver's", "a later one", "one that is over", "none"],
)
async def test_a_heartbeat_of_the_highest_epoch_keeps_a_change_and_nothing_else_does(
    fake: Worker, subject: Subject, later: int | None, stage: Stage
) -> None:
    epochs = count(EPOCH, LATER)

    async def kept() -> tuple[Stage, int] | None:
        epoch, signs = next(epochs), Signs()
        await lead(subject, Stage.PAUSED)
        await signs.give(pause_led(subject, epoch))
        headers = {} if later is None else {paths.EPOCH_HEADER: str(epoch + later)}
        begun = time.monotonic()
        while time.monotonic() < begun + TTL_S * 3 and not fake.engine.gate.is_open:
            await signs.give(subject.admin.get(paths.STATE_PATH, headers=headers))
            await asyncio.sleep(0.05)
        report = await signs.give(fake.report())
        if signs.longest_s < TTL_S:
            return report.stage, (report.epoch or 0) - epoch
        await ended(fake, Stage.OPEN)
        return None

    assert await undisturbed(kept) == (stage, max(0, later or 0))


async def test_a_heartbeat_does_not_keep_what_a_caller_without_epochs_began(
    fake: Worker, subject: Subject
) -> None:
    await lead(subject, Stage.PAUSED)

    assert await beaten_s(subject) < TTL_S + LATE_S


@pytest.mark.parametrize("stage", [Stage.CLOSED, Stage.OPEN])
async def test_a_heartbeat_does_not_keep_a_failed_pause_that_could_not_be_undone(
    fake: Worker, subject: Subject, stage: Stage
) -> None:
    if stage is Stage.OPEN:
        await subject.serve(subject.versions.first)
    await settled(fake, lambda report: report.stage is stage)
    honest = fake.engine.behaviour
    fake.engine.behaviour = replace(honest, pause_fails=True, resume_fails=True)
    fields = {"ttl_s": 600, "operation": "led", "fence": FENCE | {"epoch": EPOCH, "sequence": 1}}
    await subject.refused(Code.PAUSE_FAILED, paths.PAUSE_PATH, subject.versions.second, **fields)
    assert (await beat(subject, EPOCH)).stage is Stage.PAUSED

    fake.engine.behaviour = honest
    await beaten_s(subject)

    assert (await subject.report()).stage is stage
    assert fake.engine.paused is None


async def beaten_s(subject: Subject) -> float:
    """Give signs of life until the pause is over; return how long it took."""

    async def is_over() -> bool:
        return (await beat(subject, EPOCH)).stage is not Stage.PAUSED

    return await seconds_until(is_over)


async def beat(subject: Subject, epoch: int) -> WorkerReport:
    reply = await subject.admin.get(paths.STATE_PATH, headers={paths.EPOCH_HEADER: str(epoch)})
    return WorkerReport.model_validate_json(reply.content)


async def test_nothing_runs_out_while_a_command_is_carried_out(
    fake: Worker, subject: Subject
) -> None:
    await subject.serve(subject.versions.first)
    await subject.ok(paths.PREPARE_PATH, subject.versions.second)
    fake.engine.behaviour = Behaviour(pause_s=TTL_S * 2, reload_s=TTL_S * 2)

    report = await subject.ok(paths.UPDATE_WEIGHTS_PATH, subject.versions.second, ttl_s=TTL_S / 2)

    assert (report.stage, report.proved) == (Stage.OPEN, subject.versions.second)


async def test_a_restarted_sidecar_continues_the_countdown(fake: Worker, subject: Subject) -> None:
    ttl_s = 1.5

    async def found() -> WorkerReport | None:
        signs = Signs()
        await signs.give(lead(subject, Stage.PAUSED, ttl_s=ttl_s))
        await asyncio.sleep(0.6)
        report = await signs.give(restarted(fake))
        return report if signs.longest_s < ttl_s else None

    report = await undisturbed(found)
    assert report.stage is Stage.PAUSED
    assert report.expires_s is not None
    assert report.paused_s is not None
    assert report.expires_s < 1.0 < report.paused_s + report.expires_s < 2.0
    _, took_s = await ended(fake, Stage.OPEN)
    assert took_s < 1.0 + LATE_S


async def restarted(fake: Worker) -> WorkerReport:
    """Restart the sidecar; return what it says first of an engine that it has seen."""
    await fake.stop_sidecar()
    await fake.start_sidecar()
    return await settled(fake, lambda report: report.stage is not Stage.DOWN)


@pytest.mark.parametrize("stage", [Stage.PAUSED, Stage.PROVED])
async def test_a_sidecar_that_starts_after_the_time_to_live_ends_the_change_at_once(
    fake: Worker, subject: Subject, stage: Stage
) -> None:
    await lead(subject, stage)
    await fake.stop_sidecar()
    await asyncio.sleep(TTL_S + 0.1)
    await fake.start_sidecar()

    _, took_s = await ended(fake, Stage.OPEN)
    assert took_s < LATE_S


async def test_a_heartbeat_outlives_a_restart(fake: Worker, subject: Subject) -> None:
    """What is written down is at most a quarter of the time to live behind."""
    ttl_s, epochs = 2.0, count(EPOCH, LATER)

    async def found() -> WorkerReport | None:
        epoch, signs = next(epochs), Signs()
        await lead(subject, Stage.PAUSED)
        await signs.give(pause_led(subject, epoch, ttl_s))
        await asyncio.sleep(ttl_s / 2)
        await signs.give(beat(subject, epoch))
        report = await signs.give(restarted(fake))
        heard_s, restarted_s = signs.gaps
        if heard_s < ttl_s and restarted_s < ttl_s * 0.3:
            return report
        await ended(fake, Stage.OPEN)
        return None

    report = await undisturbed(found)
    assert report.stage is Stage.PAUSED
    assert report.expires_s is not None
    assert report.expires_s > 1.3


async def test_a_time_to_live_has_bounds(subject: Subject) -> None:
    for ttl_s in (0, -1, paths.MAX_TTL_S + 1):
        reply = await subject.send(paths.PAUSE_PATH, "step-1", ttl_s=ttl_s)
        assert (reply.status_code, reply.json()["code"]) == (400, Code.INVALID_REQUEST)
        assert "ttl_s" in reply.json()["message"]


async def test_an_epoch_that_is_no_number_is_refused(subject: Subject) -> None:
    for epoch in ("-1", "x", ""):
        reply = await subject.admin.get(paths.STATE_PATH, headers={paths.EPOCH_HEADER: epoch})
        assert (reply.status_code, reply.json()["code"]) == (400, Code.INVALID_REQUEST)
