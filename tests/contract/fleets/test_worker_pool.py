"""What the operator keeps of a worker's answers, against the real sidecar."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.report import Stage
from rlfleet_contract.worker.retention import Needs, Unneeded
from rlfleet_operator.core.model.actions import Prepare, Update
from rlfleet_operator.core.model.worker_phase import Phase, complaint_of, phase_of
from rlfleet_operator.core.model.world import Worker as Known
from rlfleet_operator.crd.rollout_spec import RolloutSpec
from rlfleet_operator.errors import Unreachable
from rlfleet_operator.workers.client import demand_of
from rlfleet_operator.workers.pool import WorkerPool
from rlfleet_operator.workers.requests import DrivenFleet
from tests import workers
from tests.contract.conftest import TOKEN, settled
from tests.contract.subject import Subject
from tests.fakes.worker import Worker
from tests.patience import seconds_until

NAME = "qwen-0"
DRIVER = DrivenFleet("f-1", 1)


ABOUT = {"namespace": "rl", "fleet": "qwen"}


async def test_workers_look_for_the_newest_version_while_the_fleet_follows(
    mine: tuple[WorkerPool, str, int],
) -> None:
    """The fake worker's volume has step-1 and step-2 complete, and newer ones that are not."""
    contacts, host, port = mine
    pods = {NAME: workers.pod(0, address=host)}
    await contacts.follow(pods, port)
    known = await until(contacts, Stage.CLOSED)
    assert known.report is not None
    assert known.report.newest is None

    contacts.look({NAME: None}, None)

    async def is_found() -> bool:
        report = contacts.worker(NAME, 0, pods[NAME]).report
        return report is not None and report.newest is not None

    await seconds_until(is_found)
    report = contacts.worker(NAME, 0, pods[NAME]).report
    assert report is not None
    assert report.newest is not None
    assert report.newest.version == "step-2"


async def test_one_worker_looks_for_versions_that_are_not_needed(
    mine: tuple[WorkerPool, str, int],
) -> None:
    contacts, host, port = mine
    pods = {NAME: workers.pod(0, address=host)}
    await contacts.follow(pods, port)
    known = await until(contacts, Stage.CLOSED)
    assert known.report is not None
    assert known.report.unneeded is None

    contacts.look({}, Needs(versions=["step-2"]))

    async def is_found() -> bool:
        report = contacts.worker(NAME, 0, pods[NAME]).report
        return report is not None and report.unneeded is not None

    await seconds_until(is_found)
    report = contacts.worker(NAME, 0, pods[NAME]).report
    assert report is not None
    assert report.unneeded == Unneeded(versions=["step-1"], count=1)


def sign() -> int:
    return DRIVER.epoch


async def token() -> str:
    return TOKEN


@pytest.fixture
async def contacts(fake: Worker) -> AsyncIterator[WorkerPool]:
    kept = WorkerPool(asyncio.Semaphore(4), 0.05, lambda: None, token, token, lambda: DRIVER, sign)
    host, _, port = fake.admin_url.removeprefix("http://").partition(":")
    await kept.follow({NAME: workers.pod(0, address=host)}, int(port))
    yield kept
    await kept.close()


@pytest.fixture
async def strangers(fake: Worker) -> AsyncIterator[WorkerPool]:
    """Contacts that have another fleet's token."""
    kept = WorkerPool(
        asyncio.Semaphore(4), 0.05, lambda: None, other, other, lambda: DRIVER, sign, 1.0, ABOUT
    )
    host, _, port = fake.admin_url.removeprefix("http://").partition(":")
    await kept.follow({NAME: workers.pod(0, address=host)}, int(port))
    yield kept
    await kept.close()


async def other() -> str:
    return "another-fleet-s-token"


async def until(contacts: WorkerPool, stage: Stage, *, reachable: bool = True) -> Known:
    """Wait until the worker is known to stand there, with nothing under way."""
    async with asyncio.timeout(30):
        while True:
            await asyncio.sleep(0.02)
            known = contacts.worker(NAME, 0, None)
            is_there = known.report is not None and known.report.stage is stage
            if is_there and known.reachable is reachable:
                return known


async def test_a_change_counts_as_under_way_until_the_worker_reports_its_end(
    fake: Worker, subject: Subject, contacts: WorkerPool
) -> None:
    step = subject.versions.first
    contacts.command(Prepare(NAME, step, "rollout-1"), RolloutSpec())
    await settled(fake, lambda report: report.prepared == step)
    await until(contacts, Stage.CLOSED)
    fake.engine.behaviour = replace(fake.engine.behaviour, reload_s=1.0)
    contacts.command(Update(NAME, step, "rollout-1", None), RolloutSpec())
    await until(contacts, Stage.LOADING)

    await fake.stop_sidecar()
    silent = await until(contacts, Stage.LOADING, reachable=False)
    await asyncio.sleep(0.1)

    assert silent.calling is Verb.RELOAD
    assert contacts.worker(NAME, 0, None).calling is Verb.RELOAD

    await fake.start_sidecar()
    assert (await until(contacts, Stage.OPEN)).calling is None


async def test_commands_begin_a_limited_number_at_once(fake: Worker, subject: Subject) -> None:
    """Thousands that connect together would miss their own timeouts."""
    limit = asyncio.Semaphore(2)
    contacts = WorkerPool(limit, 60.0, lambda: None, token, token, lambda: DRIVER, sign)
    host, _, port = fake.admin_url.removeprefix("http://").partition(":")
    await contacts.follow({NAME: workers.pod(0, address=host)}, int(port))
    await until(contacts, Stage.CLOSED)
    async with asyncio.timeout(10):
        await limit.acquire()
        await limit.acquire()

    contacts.command(Prepare(NAME, subject.versions.first, "rollout-1"), RolloutSpec())
    await asyncio.sleep(0.2)
    assert (await fake.report()).prepared is None
    assert contacts.worker(NAME, 0, None).calling is Verb.PREPARE

    limit.release()
    await settled(fake, lambda report: report.prepared == subject.versions.first)
    await contacts.close()


async def test_a_sidecar_that_takes_another_token_is_complained_of_and_logged_once(
    fake: Worker, strangers: WorkerPool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rlfleet_operator.workers.pool")
    pod = workers.pod(0)

    assert complaint_of(strangers.worker(NAME, 0, pod), workers.world()) is None
    async with asyncio.timeout(30):
        while True:
            await asyncio.sleep(0.02)
            known = strangers.worker(NAME, 0, pod)
            if known.silence is not None:
                break

    where = fake.admin_url.removeprefix("http://")
    complaint = complaint_of(known, workers.world())
    assert complaint is not None
    assert complaint.startswith(f"sidecar at {where} does not answer: Unauthorized: ")
    assert phase_of(known) is Phase.UNREACHABLE
    (line,) = (r for r in caplog.records if r.message == "Sidecar does not answer")
    assert line.__dict__.items() >= ABOUT.items()

    fake.give_token(await other())
    heard = await until(strangers, Stage.CLOSED)

    assert heard.silence is None


async def test_a_sidecar_that_could_not_be_asked_is_not_reported(fake: Worker) -> None:
    async def none() -> str:
        raise Unreachable("the Secret could not be read")

    kept = WorkerPool(
        asyncio.Semaphore(4), 0.05, lambda: None, none, none, lambda: DRIVER, sign, 0.0
    )
    host, _, port = fake.admin_url.removeprefix("http://").partition(":")
    await kept.follow({NAME: workers.pod(0, address=host)}, int(port))
    await asyncio.sleep(0.2)

    assert kept.have_all_answered()
    assert kept.worker(NAME, 0, workers.pod(0)).silence is None
    await kept.close()


@pytest.fixture
async def mine(fake: Worker) -> AsyncIterator[tuple[WorkerPool, str, int]]:
    """Contacts of nothing yet, and where a sidecar listens that knows its pod."""
    kept = WorkerPool(asyncio.Semaphore(4), 0.05, lambda: None, token, token, lambda: DRIVER, sign)
    host, _, port = fake.admin_url.removeprefix("http://").partition(":")
    yield kept, host, int(port)
    await kept.close()


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
async def test_a_pod_that_has_ended_is_asked_nothing(
    mine: tuple[WorkerPool, str, int], phase: str
) -> None:
    """It keeps the address in its status, and that may be another worker's by now."""
    contacts, host, port = mine
    await contacts.follow({NAME: workers.pod(0, address=host)}, port)
    await until(contacts, Stage.CLOSED)

    pod = workers.pod(0, address=host, phase=phase)
    await contacts.follow({NAME: pod}, port)
    await asyncio.sleep(0.1)

    known = contacts.worker(NAME, 0, pod)
    assert (known.report, known.reachable) == (None, False)


def test_a_report_of_another_pod_is_no_answer() -> None:
    pod, known = workers.pod(0), workers.report()

    assert demand_of(pod, known) is known
    assert demand_of(pod, known.model_copy(update={"pod_uid": pod.uid})).pod_uid == pod.uid
    with pytest.raises(Unreachable, match="belongs to pod p-9, expected p-0"):
        demand_of(pod, known.model_copy(update={"pod_uid": "p-9"}))
