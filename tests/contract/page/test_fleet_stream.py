"""The operator's stream of one fleet, by real HTTP: news, heartbeats, its end, slow clients."""

import asyncio
import copy
import socket
import time
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from rlfleet_operator import metrics
from rlfleet_operator.core.trainer.models import Fault, Refusal
from rlfleet_operator.errors import Retryable
from rlfleet_operator.kube.client import Json
from rlfleet_operator.kube.pod_cache import FleetKey
from rlfleet_operator.reconcile.supervisor import Supervisor
from rlfleet_operator.settings import OperatorSettings
from rlfleet_operator.trainer_api import page
from rlfleet_operator.trainer_api.page import FleetPage
from rlfleet_view import web as view
from tests.unit.rlfleet_view.recordings import fleet

LONG = "x" * 300_000
WAIT_S = 60.0


class Served(NamedTuple):
    """A server of the page, what it knows, and which callers it admits."""

    url: str
    fleets: Supervisor
    page: FleetPage
    refused: set[str | None]
    unread: set[str | None]
    """Callers whose token cannot be read now."""

    def deliver(self, revision: int, name: str = "synced", **status: str) -> None:
        """Let the operator learn of a state of the fleet."""
        self.fleets.deliver(None, revised(revision, name, **status))


def revised(revision: int, name: str = "synced", **status: str) -> Json:
    raw = copy.deepcopy(fleet(name).raw)
    raw["metadata"]["resourceVersion"] = str(revision)
    raw["status"] |= status
    return raw


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    settings = OperatorSettings(worker_image="worker:test")
    fleets = Supervisor(settings, metrics.Health())
    refused, unread = set[str | None](), set[str | None]()

    async def check(_: FleetKey, authorization: str | None) -> None:
        if authorization in refused:
            raise Refusal(Fault.UNAUTHORIZED, "no")
        if authorization in unread:
            raise Retryable("the API server does not answer")

    shown = FleetPage(fleets, check)
    app = web.Application()
    shown.add_routes(app.router, "/fleets/{namespace}/{name}")
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.5)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    made = Served(f"http://127.0.0.1:{port}/fleets/rl/qwen", fleets, shown, refused, unread)
    made.deliver(1)
    yield made
    await runner.cleanup()
    await shown.close()


async def events(reply: aiohttp.ClientResponse) -> list[str]:
    """Return the next event; empty at the end of the stream."""
    async with asyncio.timeout(WAIT_S):
        text = (await reply.content.readuntil(b"\n\n")).decode()
    return text.split("\n")


async def until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def test_a_stream_has_the_fleet_its_news_and_its_end(served: Served) -> None:
    async with aiohttp.ClientSession() as http, http.get(f"{served.url}/events") as reply:
        hello = await events(reply)
        served.deliver(2, "stalled")
        news = await events(reply)
        served.fleets.deliver("DELETED", revised(3))
        gone = await events(reply)
        rest = await reply.content.read()

    assert hello[0] == "event: hello"
    assert '"readOnly":"Read-only: the operator never changes a spec' in hello[1]
    assert '"state":"Synced"' in hello[1]
    assert news[0] == "event: fleet"
    assert '"state":"Stalled"' in news[1]
    assert gone == ["event: gone", 'data: {"key":"rl/qwen"}', "", ""]
    assert rest == b""


async def test_head_begins_no_stream(served: Served) -> None:
    async with aiohttp.ClientSession() as http, http.head(f"{served.url}/events") as reply:
        assert reply.status == 405
    assert served.page._streams.total() == 0  # noqa: SLF001 - nothing else shows what is held


async def test_a_stream_without_news_is_kept_alive(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "HEARTBEAT_S", 0.1)
    async with aiohttp.ClientSession() as http, http.get(f"{served.url}/events") as reply:
        await events(reply)
        assert await events(reply) == [": heartbeat", "", ""]


@pytest.mark.parametrize("callers", ["refused", "unread"])
async def test_a_stream_ends_in_order_once_its_token_is_another_or_cannot_be_read(
    served: Served, callers: str
) -> None:
    headers = {"Authorization": "Bearer old"}
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"{served.url}/events", headers=headers) as reply,
    ):
        await events(reply)
        getattr(served, callers).add("Bearer old")
        served.deliver(2, "stalled")

        assert await reply.content.read() == b""


async def test_a_client_that_reads_nothing_is_dropped(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "_TAKES_S", 0.5)
    monkeypatch.setattr(page, "_AT_MOST_EVERY_S", 0.01)
    url = URL(served.url)
    streams = served.page._streams  # noqa: SLF001 - nothing else shows what is held
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((url.host, url.port))
        slow.sendall(f"GET {url.path}/events HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await until(lambda: streams.total() == 1)
        for revision in range(2, 2000):
            served.deliver(revision, summary=f"{revision}{LONG}")
            await asyncio.sleep(0.02)
            if not streams.total():
                break

        assert streams.total() == 0
