"""The client of vLLM, where the fake engine cannot go."""

import asyncio
import time

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from rlfleet_contract.models import KVCache, PauseMode
from rlfleet_sidecar.engine import Engine
from rlfleet_sidecar.errors import EngineLostError


async def test_an_engine_that_listens_no_more_is_lost_though_its_connection_stays_open() -> None:
    held: list[asyncio.StreamWriter] = []
    asked = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)
        await reader.read(1)
        asked.set()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with Engine(f"http://127.0.0.1:{port}") as engine:
        pausing = asyncio.create_task(engine.pause(PauseMode.KEEP, KVCache.RESET))
        await asked.wait()
        server.close()

        with pytest.raises(EngineLostError):
            async with asyncio.timeout(30):
                await pausing
    for writer in held:
        writer.close()


SOON_S = 0.1


@pytest.mark.parametrize(("status", "is_alive"), [(200, True), (503, False), (404, False)])
async def test_an_engine_is_alive_when_its_extension_says_so(
    status: int, *, is_alive: bool
) -> None:
    async def tell(scope: Scope, _receive: Receive, send: Send) -> None:
        assert (scope["method"], scope["path"]) == ("GET", "/liveness")
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with Engine("http://127.0.0.1", httpx.ASGITransport(tell)) as engine:
        assert await engine.is_alive(SOON_S) is is_alive


async def test_an_engine_that_says_nothing_is_not_alive_and_is_not_waited_for() -> None:
    held: list[asyncio.StreamWriter] = []

    async def hold(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with Engine(url) as engine:
        begun = time.monotonic()
        assert not await engine.is_alive(SOON_S)
        assert time.monotonic() - begun < 10
        server.close()
        for writer in held:
            writer.close()
            await writer.wait_closed()
        assert not await engine.is_alive(SOON_S)
