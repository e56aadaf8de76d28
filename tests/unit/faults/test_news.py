"""What an operator gets of a worker's news under each fault, over real connections."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from faults.modes import SIDECAR
from faults.news import MODES, News
from rlfleet_contract.worker.report import WorkerReport
from rlfleet_operator.errors import OperatorError, Unreachable
from rlfleet_operator.workers.client import WorkerClient
from tests import workers
from tests.fakes.serving import Listener

SIDECAR_AT = "127.0.0.1"


def line_of(serial: int) -> bytes:
    return workers.report(serial=serial).model_dump_json().encode() + b"\n"


class Sidecar:
    """Sends three reports and a sign of life over each long request, and keeps it open."""

    def __init__(self) -> None:
        self.listener = Listener(self._answer, SIDECAR_AT, 0)
        self.begun = self.ended = 0

    async def _answer(self, _scope: Any, receive: Any, send: Any) -> None:
        await receive()
        self.begun += 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for line in (line_of(1), line_of(2), line_of(3), b"\n"):
            await send({"type": "http.response.body", "body": line, "more_body": True})
            await asyncio.sleep(0.05)
        await receive()
        self.ended += 1


class Way:
    """An operator's way to the sidecar's news."""

    def __init__(self, sidecar: Sidecar, news: News) -> None:
        self.sidecar, self.news = sidecar, news
        self.server = web.Server(self._handle)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        url = f"http://{SIDECAR_AT}:{self.sidecar.listener.port}{request.path_qs}"
        return await self.news.pass_on(request, SIDECAR_AT, url, {})


@pytest.fixture
async def way() -> AsyncIterator[Way]:
    sidecar = Sidecar()
    await sidecar.listener.start()
    async with aiohttp.ClientSession() as http:
        made = Way(sidecar, News(http))
        yield made
        await made.server.shutdown(0.05)
    await sidecar.listener.stop()


@pytest.fixture
async def client(way: Way) -> AsyncIterator[WorkerClient]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(way.server, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    made = WorkerClient(f"http://127.0.0.1:{port}", asyncio.Semaphore(1))
    yield made
    await made.close()
    server.close()


async def received(
    client: WorkerClient, count: int, limit_s: float = 20.0
) -> list[int | type[OperatorError]]:
    """Return what one long request brings: serials of reports, how it ended."""
    found: list[int | type[OperatorError]] = []

    async def listen() -> None:
        lines = client.watch("token")
        try:
            async for report in lines:
                if report is not None and report.serial is not None:
                    found.append(report.serial)
                if len(found) == count:
                    break
        except OperatorError as error:
            found.append(type(error))
        await lines.aclose()

    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await listen()
    return found


def test_every_fault_of_news_has_a_mode_and_every_mode_its_fault() -> None:
    assert {mode.name for mode in SIDECAR if mode.name.startswith("news-")} == MODES


async def test_without_a_fault_each_line_passes(client: WorkerClient) -> None:
    assert await received(client, 3) == [1, 2, 3]


async def test_without_a_fault_a_sign_of_life_passes(client: WorkerClient) -> None:
    lines = client.watch("token")
    for serial in (1, 2, 3):
        report = await anext(lines)
        assert report is not None
        assert report.serial == serial

    more = asyncio.ensure_future(anext(lines))
    async with asyncio.timeout(5):
        while not client.has_signs():  # noqa: ASYNC110 - nothing wakes for it
            await asyncio.sleep(0.02)

    assert not more.done()
    more.cancel()
    await asyncio.wait({more})
    await lines.aclose()


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [
        ("news-cut", [Unreachable]),
        ("news-lost", [Unreachable]),
        ("news-malformed", [Unreachable]),
        ("news-refused", [Unreachable]),
        ("news-repeated", [1, 1, 2, 2, 1, 3, 3, 2]),
        ("news-late", [1, 2, 3]),
    ],
)
async def test_what_comes_of_news_under_a_fault(
    way: Way, client: WorkerClient, mode: str, wanted: list[object]
) -> None:
    way.news.strike(mode, SIDECAR_AT)
    begun = time.monotonic()

    assert await received(client, len(wanted)) == wanted

    is_delayed = mode in {"news-late", "news-lost"}
    assert (time.monotonic() - begun > 0.9) == is_delayed


@pytest.mark.parametrize("mode", ["news-cut", "news-lost", "news-malformed"])
async def test_the_request_after_a_broken_one_is_whole(
    way: Way, client: WorkerClient, mode: str
) -> None:
    way.news.strike(mode, SIDECAR_AT)
    await received(client, 1)

    assert await received(client, 3) == [1, 2, 3]


async def test_frozen_news_are_silence_and_no_end(way: Way, client: WorkerClient) -> None:
    way.news.strike("news-frozen", SIDECAR_AT)

    assert await received(client, 1, limit_s=1.5) == []
    assert way.sidecar.begun == 1


async def test_a_fault_strikes_the_news_of_one_worker(way: Way, client: WorkerClient) -> None:
    way.news.strike("news-frozen", "127.0.0.2")

    assert await received(client, 3) == [1, 2, 3]


async def test_a_request_ends_at_the_sidecar_soon_after_its_operator(
    way: Way, client: WorkerClient
) -> None:
    lines = client.watch("token")
    assert isinstance(await anext(lines), WorkerReport)

    await lines.aclose()

    async with asyncio.timeout(5):
        while not way.sidecar.ended:  # noqa: ASYNC110 - it is remote
            await asyncio.sleep(0.02)
