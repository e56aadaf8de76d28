"""Commands with a fence: which are accepted, for which worker, and what a repeat returns."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code, Problem
from rlfleet_contract.worker.report import Stage, WorkerReport
from tests.contract.conftest import TOKEN, settled
from tests.contract.subject import Subject, Versions, client_of
from tests.fakes.behaviour import Behaviour
from tests.fakes.worker import Worker
from tests.journals import journal_of

FLEET, POD = "fleet-uid", "pod-uid"


@pytest.fixture
def identity() -> dict[str, str]:
    """Give the worker its UIDs."""
    return {"fleet_uid": FLEET, "pod_uid": POD}


def fence(epoch: int, sequence: int, **fields: str) -> dict[str, Any]:
    return {"fleet": FLEET, "pod": POD, "epoch": epoch, "sequence": sequence} | fields


async def served(subject: Subject) -> None:
    """Serve the first version and prepare the second, without an epoch."""
    await subject.serve(subject.versions.first)
    await subject.ok(paths.PREPARE_PATH, subject.versions.second)


async def order(
    subject: Subject, path: str, epoch: int, sequence: int, **fields: Any
) -> httpx.Response:
    """Send a command about the second version, the same for the same number."""
    fields = {"operation": "rollout-1", "fence": fence(epoch, sequence)} | fields
    return await subject.send(path, subject.versions.second, **fields)


async def test_a_worker_reports_which_pod_it_is(subject: Subject) -> None:
    assert (await subject.report()).pod_uid == POD


@pytest.mark.parametrize("field", ["fleet", "pod"])
async def test_a_command_for_another_worker_is_refused(subject: Subject, field: str) -> None:
    await served(subject)

    problem = await subject.refused(
        Code.WRONG_WORKER,
        paths.UPDATE_WEIGHTS_PATH,
        subject.versions.second,
        fence=fence(9, 1, **{field: "another"}),
    )

    assert "another" in problem.message
    report = await subject.report()
    assert (report.proved, report.epoch) == (subject.versions.first, None)


@pytest.mark.parametrize(
    "path",
    [paths.PREPARE_PATH, paths.PAUSE_PATH, paths.RESUME_PATH, paths.UPDATE_WEIGHTS_PATH],
)
async def test_a_lower_epoch_gets_the_highest_and_has_no_effect(
    subject: Subject, path: str
) -> None:
    await served(subject)
    await order(subject, paths.PREPARE_PATH, 5, 1)
    before = await subject.report()

    reply = await order(subject, path, 4, 99)

    problem = Problem.model_validate_json(reply.content)
    assert (reply.status_code, problem.code, problem.epoch) == (409, Code.STALE_EPOCH, 5)
    assert (problem.operation, problem.version) == ("rollout-1", subject.versions.second)
    after = await subject.report()
    assert after == before.model_copy(update={"serial": after.serial})
    assert before.epoch == 5


async def test_a_heartbeat_of_a_later_driver_ends_the_one_before(
    fake: Worker, subject: Subject
) -> None:
    await served(subject)
    await subject.admin.get(paths.STATE_PATH, headers={paths.EPOCH_HEADER: "7"})
    await fake.stop_sidecar()
    await fake.start_sidecar()
    await settled(fake, lambda report: report.stage is Stage.OPEN)

    reply = await order(subject, paths.UPDATE_WEIGHTS_PATH, 6, 1)

    assert reply.json()["code"] == Code.STALE_EPOCH
    assert (await fake.report()).epoch == 7


@pytest.mark.parametrize("restarts", [0, 1], ids=["at once", "after a restart"])
async def test_a_repeat_gets_the_answer_that_the_first_got(
    fake: Worker, subject: Subject, restarts: int
) -> None:
    await served(subject)
    first = await order(subject, paths.UPDATE_WEIGHTS_PATH, 1, 1)
    await subject.serve(subject.versions.first)
    refused = await order(subject, paths.VERIFY_PATH, 1, 2)
    for _restart in range(restarts):
        await fake.stop_sidecar()
        await fake.start_sidecar()
        await settled(fake, lambda report: report.stage is Stage.OPEN)
    flushes = fake.engine.flushes

    again = await order(subject, paths.UPDATE_WEIGHTS_PATH, 1, 1)
    refused_again = await order(subject, paths.VERIFY_PATH, 1, 2)

    assert (again.status_code, again.content) == (200, first.content)
    assert (refused_again.status_code, refused_again.content) == (409, refused.content)
    assert fake.engine.flushes == flushes
    assert (await fake.report()).proved == subject.versions.first


async def test_a_failure_is_repeated_too_and_a_new_number_tries_again(
    fake: Worker, subject: Subject
) -> None:
    await served(subject)
    fake.engine.behaviour = Behaviour(pause_fails=True)
    first = await order(subject, paths.UPDATE_WEIGHTS_PATH, 1, 1)
    fake.engine.behaviour = Behaviour()

    again = await order(subject, paths.UPDATE_WEIGHTS_PATH, 1, 1)
    anew = await order(subject, paths.UPDATE_WEIGHTS_PATH, 1, 2)

    assert (first.status_code, again.content) == (502, first.content)
    assert WorkerReport.model_validate_json(anew.content).proved == subject.versions.second


async def test_a_repeat_under_way_joins_and_both_get_one_answer(
    fake: Worker, subject: Subject
) -> None:
    await served(subject)
    fake.engine.behaviour = Behaviour(reload_s=0.3)

    calls = [asyncio.create_task(order(subject, paths.UPDATE_WEIGHTS_PATH, 1, 1)) for _ in range(3)]
    replies = await asyncio.gather(*calls)

    assert {reply.content for reply in replies} == {replies[0].content}
    assert fake.engine.flushes == 2, "one for each version"


async def test_the_answer_is_kept_though_its_caller_left(
    fake: Worker, subject: Subject, tmp_path: Path
) -> None:
    await served(subject)
    fake.engine.behaviour = Behaviour(reload_s=0.3)
    with pytest.raises(httpx.ReadTimeout):
        await subject.admin.post(
            paths.UPDATE_WEIGHTS_PATH,
            json={
                "operation": "rollout-1",
                "version": subject.versions.second,
                "fence": fence(1, 1),
            },
            timeout=0.1,
        )
    await fake.stop_sidecar()
    journal = journal_of(tmp_path / "pod" / "state")
    assert journal["heard"]["orders"][-1]["answer"]["status"] == 200, "it ended with its answer"
    await fake.start_sidecar()

    again = await order(subject, paths.UPDATE_WEIGHTS_PATH, 1, 1)

    assert WorkerReport.model_validate_json(again.content).proved == subject.versions.second
    assert fake.engine.flushes == 2


async def test_the_next_driver_takes_up_what_the_last_one_began(
    fake: Worker, subject: Subject
) -> None:
    await served(subject)
    fake.engine.behaviour = Behaviour(reload_s=1.0)
    first = asyncio.create_task(order(subject, paths.UPDATE_WEIGHTS_PATH, 1, 8))
    await settled(fake, lambda report: report.stage is Stage.LOADING)

    second = await order(subject, paths.UPDATE_WEIGHTS_PATH, 2, 1)

    assert second.status_code == (await first).status_code == 200
    assert fake.engine.flushes == 2
    assert (await order(subject, paths.UPDATE_WEIGHTS_PATH, 1, 8)).json()["epoch"] == 2
    assert (await order(subject, paths.UPDATE_WEIGHTS_PATH, 2, 1)).content == second.content


async def test_parts_of_a_change_do_not_join_one_another(fake: Worker, subject: Subject) -> None:
    await served(subject)
    fake.engine.behaviour = Behaviour(pause_s=0.3)
    part = asyncio.create_task(order(subject, paths.UPDATE_WEIGHTS_PATH, 1, 1, through="Pause"))
    await settled(fake, lambda report: report.stage is Stage.PAUSED)

    whole = await order(subject, paths.UPDATE_WEIGHTS_PATH, 1, 2)

    assert whole.json()["code"] == Code.BUSY
    assert (await part).json()["stage"] == Stage.PAUSED


async def test_without_a_fence_no_command_crosses_an_operators_change(
    fake: Worker, subject: Subject
) -> None:
    await served(subject)
    await order(subject, paths.UPDATE_WEIGHTS_PATH, 1, 1, through="Pause")

    for path in (paths.RESUME_PATH, paths.UPDATE_WEIGHTS_PATH, paths.PREPARE_PATH):
        problem = await subject.refused(Code.BUSY, path, subject.versions.first)
        assert "rollout-1" in problem.message
    assert (await fake.report()).stage is Stage.PAUSED
    await subject.ok(paths.RESUME_PATH, subject.versions.first, operation="rollout-1")
    assert (await subject.serve(subject.versions.first)).stage is Stage.OPEN


async def test_a_later_operation_of_an_operator_takes_a_change_over(
    fake: Worker, subject: Subject
) -> None:
    await served(subject)
    await order(subject, paths.UPDATE_WEIGHTS_PATH, 1, 1, through="Verify")

    reply = await order(subject, paths.UPDATE_WEIGHTS_PATH, 1, 2, operation="rollout-2")

    assert reply.json()["stage"] == Stage.OPEN


async def test_a_number_for_two_commands_is_refused(subject: Subject) -> None:
    await served(subject)
    await order(subject, paths.PREPARE_PATH, 1, 1)

    reply = await order(subject, paths.PREPARE_PATH, 1, 1, timeout_s=7)

    assert (reply.status_code, reply.json()["code"]) == (400, Code.INVALID_REQUEST)


async def test_a_worker_without_its_uids_accepts_any_fence(
    tmp_path: Path, model: Path, weights: Path
) -> None:
    worker = Worker(
        "127.0.0.1", model, weights, TOKEN, tmp_path / "nobody", engine_port=0, admin_port=0
    )
    async with worker, worker.client() as admin, client_of(worker.engine_url) as engine:
        subject = Subject(admin, engine, "fake", Versions())
        reply = await order(subject, paths.PREPARE_PATH, 1, 1)

        assert reply.status_code == 200
