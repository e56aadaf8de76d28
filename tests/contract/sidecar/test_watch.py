"""A sidecar's side of a watch: what it writes, and until when."""

import asyncio

import pytest

from rlfleet_contract.worker.report import Progress, Stage, WorkerReport
from rlfleet_operator.errors import WorkerProblem
from rlfleet_operator.workers.client import WorkerClient
from rlfleet_sidecar.http import watch
from rlfleet_sidecar.state.news import News
from tests.contract.conftest import TOKEN
from tests.fakes.worker import Worker


async def test_a_line_comes_at_once_with_each_news_and_signs_of_life_between() -> None:
    now = {"stage": Stage.CLOSED, "in_flight": 0}
    news = News()
    lines = watch.lines(lambda: WorkerReport(session="s", **now), news, lambda: True, sign_s=0.02)

    async def line() -> str | None:
        text = await anext(lines)
        return WorkerReport.model_validate_json(text).stage if text.strip() else None

    async with asyncio.timeout(10):
        assert await line() == Stage.CLOSED
        now["in_flight"] = 7
        assert await line() is None, "a count is no news"
        now["stage"] = Stage.OPEN
        news.announce()
        assert await line() == Stage.OPEN
        assert await line() is None
    await lines.aclose()  # type: ignore[attr-defined]


async def test_a_rate_is_no_news_and_what_is_copied_and_a_higher_epoch_are() -> None:
    begun = Progress(version="step-2", bytes_done=1, bytes_total=9, bytes_per_s=2.0, left_s=4.0)
    known = WorkerReport(session="s", stage=Stage.OPEN, epoch=1, progress=begun)

    def with_progress(**fields: float) -> WorkerReport:
        return known.model_copy(update={"progress": begun.model_copy(update=fields)})

    hanging = with_progress(bytes_per_s=1.0, left_s=8.0)
    assert not hanging.is_news_after(known)
    assert with_progress(bytes_done=2).is_news_after(known)
    assert known.model_copy(update={"progress": None}).is_news_after(known)
    assert known.model_copy(update={"epoch": 2}).is_news_after(known)


async def test_a_higher_epoch_reaches_the_watching_driver_at_once(fake: Worker) -> None:
    earlier, later = (WorkerClient(fake.admin_url, asyncio.Semaphore(1)) for _ in range(2))
    lines = earlier.watch(TOKEN)
    assert await anext(lines) is not None

    await later.state(TOKEN, 7)

    async with asyncio.timeout(10):
        while (line := await anext(lines)) is None:
            pass  # A sign of life.
    assert line.epoch == 7
    await lines.aclose()
    for client in (earlier, later):
        await client.close()


async def test_a_watch_ends_with_the_token_that_it_began_with(fake: Worker) -> None:
    client = WorkerClient(fake.admin_url, asyncio.Semaphore(1))
    with pytest.raises(WorkerProblem, match="Unauthorized"):
        await anext(client.watch("another"))
    lines = client.watch(TOKEN)
    assert await anext(lines) is not None

    fake.give_token("a-new-token")

    async with asyncio.timeout(10):
        assert [line async for line in lines if line is not None] == []
    await client.close()


async def test_more_watches_than_the_limit_are_rejected_and_state_still_answers(
    fake: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlfleet_sidecar.http.request_limit.READS", 2)
    client = WorkerClient(fake.admin_url, asyncio.Semaphore(1))
    open_ = [client.watch(TOKEN) for _ in range(2)]
    for lines in open_:
        assert await anext(lines) is not None

    with pytest.raises(WorkerProblem, match="TooManyRequests"):
        await anext(client.watch(TOKEN))
    assert (await client.state(TOKEN)).session

    for lines in open_:
        await lines.aclose()
    await client.close()
