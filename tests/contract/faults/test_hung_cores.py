"""An engine whose core hangs behind a closed gate, where the kubelet's probe does not ask it."""

import asyncio

import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.change import steps
from tests.contract.conftest import settled
from tests.contract.subject import Subject
from tests.fakes.behaviour import Behaviour
from tests.fakes.worker import Worker

TTL_S = 0.3


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "_UNDO_S", 0.3)


async def pause_without_driver(subject: Subject) -> None:
    """Pause a worker that serves; nothing renews the change's time to live."""
    await subject.serve(subject.versions.first)
    await subject.ok(paths.PREPARE_PATH, subject.versions.second)
    await subject.ok(paths.PAUSE_PATH, subject.versions.second, ttl_s=TTL_S)


async def demand_ended(fake: Worker) -> None:
    """Require that the engine ends, and that its next boot is found."""
    await settled(fake, lambda report: report.stage is Stage.DOWN)
    fake.engine.behaviour = Behaviour()
    await fake.restart_engine()
    await settled(fake, lambda report: report.stage is Stage.CLOSED)


async def test_an_engine_that_hangs_in_its_pause_is_ended(fake: Worker, subject: Subject) -> None:
    await subject.serve(subject.versions.first)
    await subject.ok(paths.PREPARE_PATH, subject.versions.second)
    fake.engine.behaviour = Behaviour(core_hangs=True)

    pause = {"operation": "the-change", "ttl_s": 60, "timeout_s": 0.3}
    reply = await subject.send(paths.PAUSE_PATH, subject.versions.second, **pause)

    assert reply.json()["code"] == "PauseFailed"
    await demand_ended(fake)


async def test_an_engine_that_hangs_after_its_pause_is_ended_with_its_time_to_live(
    fake: Worker, subject: Subject
) -> None:
    await pause_without_driver(subject)
    waiting = asyncio.create_task(subject.complete(max_tokens=2))
    fake.engine.behaviour = Behaviour(core_hangs=True)

    await demand_ended(fake)

    await asyncio.gather(waiting, return_exceptions=True)


async def test_a_slow_resume_of_a_core_that_answers_ends_no_engine(
    fake: Worker, subject: Subject
) -> None:
    await pause_without_driver(subject)
    fake.engine.behaviour = Behaviour(resume_hangs=True)

    await asyncio.sleep(3 * TTL_S + 0.5)
    assert (await subject.report()).stage is Stage.PAUSED
    fake.engine.behaviour = Behaviour()

    assert (await settled(fake, lambda report: report.stage is Stage.OPEN)).proved
