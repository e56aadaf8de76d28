"""The benchmark's simulated workers answer the operator's client as real sidecars do."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from bench.lean import LeanWorker
from rlfleet_contract.worker.commands import PrepareRequest, UpdateRequest
from rlfleet_contract.worker.fence import Fence
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage, WorkerReport
from rlfleet_operator.errors import WorkerProblem
from rlfleet_operator.workers.client import WorkerClient

TOKEN = "token-1"
ADDRESS, PORT = "127.9.8.7", 18090
VERSION = "step-1"


@pytest.fixture
async def client() -> AsyncIterator[WorkerClient]:
    worker = LeanWorker(ADDRESS, admin_port=PORT)
    worker.give_token(TOKEN)
    async with worker:
        client = WorkerClient(f"http://{ADDRESS}:{PORT}", asyncio.Semaphore(4))
        yield client
        await client.close()


def prepare(sequence: int, *, epoch: int = 1) -> PrepareRequest:
    fence = Fence(fleet="f", pod="p", epoch=epoch, sequence=sequence)
    return PrepareRequest(operation="rollout-1", version=VERSION, fence=fence)


def update(sequence: int) -> UpdateRequest:
    fence = Fence(fleet="f", pod="p", epoch=1, sequence=sequence)
    return UpdateRequest(operation="rollout-1", version=VERSION, fence=fence)


async def test_a_change_after_a_prepare_ends_proved_and_open(client: WorkerClient) -> None:
    await client.command(TOKEN, prepare(1))

    report = await client.command(TOKEN, update(2))

    assert (report.stage, report.proved, report.epoch) == (Stage.OPEN, VERSION, 1)
    assert report.last_change is not None
    assert report.last_change.finished_at > 0


async def test_a_change_without_a_prepare_changes_nothing(client: WorkerClient) -> None:
    report = await client.command(TOKEN, update(1))

    assert (report.stage, report.proved) == (Stage.CLOSED, None)


async def test_a_watch_reports_what_a_command_does(client: WorkerClient) -> None:
    found: list[WorkerReport] = []
    async with asyncio.timeout(60):
        command: asyncio.Task[WorkerReport] | None = None
        async with contextlib.aclosing(client.watch(TOKEN)) as watch:
            async for report in watch:
                found += [report] if report else []
                command = command or asyncio.create_task(client.command(TOKEN, prepare(1)))
                if found[-1].prepared == VERSION:
                    await command
                    break

    assert found[0].prepared is None
    assert not any(new.is_older_than(old) for old, new in pairwise(found))


async def test_each_answer_counts_as_later_than_the_one_before(client: WorkerClient) -> None:
    first = await client.state(TOKEN)

    second = await client.state(TOKEN)

    assert not second.is_older_than(first)
    assert not second.is_news_after(first)


async def test_a_repeat_has_one_effect_and_an_old_epoch_none(client: WorkerClient) -> None:
    first = await client.command(TOKEN, prepare(1, epoch=2))
    again = await client.command(TOKEN, prepare(1, epoch=2))

    with pytest.raises(WorkerProblem) as stale:
        await client.command(TOKEN, prepare(9, epoch=1))

    assert again == first
    assert stale.value.problem.code is Code.STALE_EPOCH
    assert stale.value.problem.epoch == 2


async def test_another_token_is_rejected(client: WorkerClient) -> None:
    with pytest.raises(WorkerProblem) as problem:
        await client.state("wrong")

    assert problem.value.problem.code is Code.UNAUTHORIZED
