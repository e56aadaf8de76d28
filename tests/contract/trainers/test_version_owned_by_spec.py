"""A fleet that is asked for a version rejects its trainers at their first call, and says why."""

import asyncio
from typing import Any

import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.report import Stage, Target
from rlfleet_operator.workers.pool import WorkerPool
from rlfleet_operator.workers.requests import DrivenFleet
from tests import workers
from tests.contract.conftest import TOKEN
from tests.contract.subject import Subject
from tests.contract.transcripts import PAUSE, RESUME, RUNS, Call, play, send, update
from tests.fakes.worker import Worker
from tests.patience import seconds_until

OWNER = "spec.weightVersion, written by kubectl-edit"
NAME = "qwen-0"
SOON_S = 5.0


async def beat(subject: Subject, epoch: int, version: str | None, owner: str = OWNER) -> None:
    named = {} if version is None else {paths.TARGET_HEADER: version, paths.OWNER_HEADER: owner}
    headers = {paths.EPOCH_HEADER: str(epoch), **named}
    assert (await subject.admin.get(paths.STATE_PATH, headers=headers)).status_code == 200


async def unasked(subject: Subject, epoch: int) -> None:
    await subject.admin.get(paths.STATE_PATH, headers={paths.UNASKED_HEADER: str(epoch)})


def refused(call: str, body: Any = None) -> Call:
    fields = {
        "status": "error",
        "code": "WrongStage",
        "message": f"target is step-1 (set by {OWNER}",
    }
    return Call(call, 409, fields, body)


FIRST_CALLS = (
    refused("POST /pause?mode=keep&clear_cache=false"),
    refused("POST /sleep?level=0"),
    refused("POST /engine/pause_generation", {}),
    refused("POST /update_weights", {"weight_dir": "{weights}/step-2"}),
    refused(
        "POST /collective_rpc",
        {"method": "reload_weights", "kwargs": {"weights_path": "{weights}/step-2"}},
    ),
)


@pytest.mark.parametrize("call", FIRST_CALLS, ids=lambda call: call.request)
async def test_a_trainer_s_first_call_is_rejected_with_what_sets_the_version(
    subject: Subject, fake: Worker, call: Call
) -> None:
    await subject.serve("step-1")
    await beat(subject, 3, "step-1")

    await send(call, subject)

    assert (await subject.report()).proved == "step-1"
    assert fake.engine.gate.is_open
    trainer = (await subject.report()).rejected_trainer
    assert trainer is not None
    assert trainer.client.startswith("127.0.0.1 (python-httpx")
    assert trainer.call == call.request.partition("?")[0]


async def test_an_update_that_the_operator_s_prepare_displaces_says_what_sets_the_version(
    subject: Subject,
) -> None:
    await subject.serve("step-1")
    await send(PAUSE, subject)
    body = {"weight_dir": f"{subject.weights}/{subject.versions.incomplete}"}
    updating = asyncio.create_task(subject.admin.post("/update_weights", json=body))
    await subject.until(lambda report: report.progress is not None)

    await beat(subject, 3, "step-1")
    await subject.ok(paths.PREPARE_PATH, "step-1")

    reply = await updating
    assert reply.status_code == 409
    assert f"target is step-1 (set by {OWNER}" in reply.json()["message"]


async def test_a_resume_is_the_trainer_s_own(subject: Subject) -> None:
    """What it has paused before the fleet was asked for a version, it may open."""
    await subject.serve("step-1")
    await send(PAUSE, subject)
    await beat(subject, 3, "step-1")

    await play((RESUME, RUNS), subject)


async def test_a_worker_learns_at_once_that_its_fleet_is_asked_for_nothing(
    subject: Subject,
) -> None:
    await subject.serve("step-1")
    await beat(subject, 3, "step-1")
    await send(FIRST_CALLS[0], subject)

    # A driver that is replaced says nothing that counts.
    await unasked(subject, 2)
    await send(FIRST_CALLS[0], subject)
    await unasked(subject, 3)

    await play((PAUSE, update("step-2"), RESUME, RUNS), subject)


class TestWithALittleTime:
    @pytest.fixture
    def identity(self) -> dict[str, object]:
        return {"trainer_prepare_s": 0.2, "trainer_ttl_s": 0.3}

    async def test_that_a_fleet_is_asked_for_nothing_keeps_no_change_alive(
        self, subject: Subject
    ) -> None:
        await subject.serve("step-1")
        await send(PAUSE, subject)

        async with asyncio.timeout(10):
            while (await subject.report()).stage is not Stage.OPEN:
                await unasked(subject, 3)
                await asyncio.sleep(0.05)


async def test_a_driver_says_at_once_that_the_version_left_the_spec(
    fake: Worker, subject: Subject
) -> None:
    """Its questions are far apart, and it gives no sign of life without a version."""
    asked: list[Target] = []

    async def token() -> str:
        return TOKEN

    contacts = WorkerPool(
        asyncio.Semaphore(4),
        600.0,
        lambda: None,
        token,
        token,
        lambda: DrivenFleet("f-1", 3),
        lambda: 3 if asked else None,
    )
    await subject.serve("step-1")
    host, _, port = fake.admin_url.removeprefix("http://").partition(":")
    pods = {NAME: workers.pod(0, address=host)}
    try:
        asked.append(Target("step-1", OWNER))
        await contacts.follow(pods, int(port), asked[0])
        await _until_answered(subject, 409)
        asked.clear()
        await contacts.follow(pods, int(port), None)
        await _until_answered(subject, 200)
    finally:
        await contacts.close()


async def _until_answered(subject: Subject, status: int) -> None:
    async def is_answered() -> bool:
        return (await subject.admin.post("/pause?mode=keep")).status_code == status

    assert await seconds_until(is_answered) < SOON_S
