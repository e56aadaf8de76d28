"""The client of vLLM, where the fake engine cannot go."""

import asyncio
import gc
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from itertools import count

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from rlfleet_contract.engine.rank_report import Installed
from rlfleet_contract.worker.commands import KVCache, PauseMode
from rlfleet_sidecar.errors import EngineError, EngineLostError
from rlfleet_sidecar.vllm_client import EngineClient


async def test_an_engine_that_stopped_listening_is_lost_though_its_connection_stays_open() -> None:
    held: list[asyncio.StreamWriter] = []
    asked = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)
        await reader.read(1)
        asked.set()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with EngineClient(f"http://127.0.0.1:{port}") as engine:
        pausing = asyncio.create_task(engine.pause(PauseMode.KEEP, KVCache.RESET))
        await asked.wait()
        server.close()

        with pytest.raises(EngineLostError):
            async with asyncio.timeout(30):
                await pausing
    for writer in held:
        writer.close()


GATE = b'{"boot": "b", "is_open": true, "waiting": 0, "in_flight": 0}'
REPLY = f"HTTP/1.1 200 OK\r\ncontent-length: {len(GATE)}\r\n\r\n".encode() + GATE
_STALLS = 24
"""Three times what the client sends at once."""
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def test_a_call_that_vllm_raised_in_takes_no_other_with_its_connection() -> None:
    """uvicorn closes the connection after such an answer, and does not say so in it."""

    held: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)
        head = await reader.readuntil(b"\r\n\r\n")
        is_gate = head.startswith(b"POST /rlfleet/gate ")
        await reader.readuntil(b"}")
        status, body = (b"200 OK", GATE) if is_gate else (b"500 Internal Server Error", b"{}")
        writer.write(b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))
        await reader.read(1)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with EngineClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as engine:
        with pytest.raises(EngineError, match="returned 500"):
            await engine.transfer("/init_weight_transfer_engine", {}, is_load=False)

        assert (await engine.open_gate("b", None)).is_open
    server.close()
    for writer in held:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(("failures", "previous"), [(0, "old"), (1, None), (2, None)])
async def test_a_rank_that_is_loaded_again_is_not_compared_with_the_try_before(
    failures: int, previous: str | None
) -> None:
    """Of several ranks one may have loaded in a try that another failed."""
    engine, calls = engine_that_fails(failures)

    async with engine:
        (rank,) = await engine.reload("/weights", [], 60)

    assert (rank.previous, len(calls)) == (previous, failures + 1)


async def test_a_reload_that_took_long_is_not_sent_again() -> None:
    engine, calls = engine_that_fails(1, takes_s=0.2)

    async with engine:
        with pytest.raises(EngineError, match="returned 500: it failed"):
            await engine.reload("/weights", [], 0.3)

    assert len(calls) == 1


async def test_an_engine_that_is_slow_to_be_reached_is_not_lost() -> None:
    """The machine may stand still, or vLLM may be slow to accept connections."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, ExitStack() as queue:
        for _ in range(4):
            waiting = queue.enter_context(socket.socket())
            waiting.settimeout(0)
            waiting.connect_ex(server.getsockname())

        async with EngineClient(f"http://127.0.0.1:{server.getsockname()[1]}") as engine:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await engine.gate()


SOON_S = 0.1


@pytest.mark.parametrize(("status", "is_alive"), [(200, True), (503, False), (404, False)])
async def test_an_engine_is_alive_when_its_extension_says_so(
    status: int, *, is_alive: bool
) -> None:
    async def answer(scope: Scope, _receive: Receive, send: Send) -> None:
        assert (scope["method"], scope["path"]) == ("GET", "/liveness")
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with EngineClient("http://127.0.0.1", httpx.ASGITransport(answer)) as engine:
        assert await engine.is_alive(SOON_S) is is_alive


async def test_an_engine_that_says_nothing_is_not_alive_and_is_not_waited_for() -> None:
    held: list[asyncio.StreamWriter] = []

    async def hold(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with EngineClient(url) as engine:
        begun = time.monotonic()
        assert not await engine.is_alive(SOON_S)
        assert time.monotonic() - begun < 10
        server.close()
        for writer in held:
            writer.close()
            await writer.wait_closed()
        assert not await engine.is_alive(SOON_S)


def engine_that_fails(count: int, takes_s: float = 0) -> tuple[EngineClient, list[Scope]]:
    """An engine that answers so many calls 500, and a client of it."""
    calls: list[Scope] = []
    rank = Installed(tensors=1, nbytes=2, digest="new", previous="old")

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        calls.append(scope)
        await asyncio.sleep(takes_s)
        is_failure = len(calls) <= count
        results = b'{"results": [%b]}' % rank.model_dump_json().encode()
        status, body = (500, b"it failed") if is_failure else (200, results)
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": body})

    return EngineClient("http://engine", httpx.ASGITransport(app)), calls


async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each request about the gate, after a moment."""
    try:
        while await reader.readuntil(b"\r\n\r\n"):
            await asyncio.sleep(0.02)
            writer.write(REPLY)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 4])
async def test_a_request_that_is_cancelled_leaves_no_connection_open(
    monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    left: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: left.append(str(found.exc_value)))
    async with answering(answered) as engine:
        await asyncio.gather(*(engine.gate() for _ in range(3)))
        asking = asyncio.create_task(engine.gate())
        for _ in range(turns):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    gc.collect()

    assert left == []


async def test_an_engine_is_seen_after_looks_that_a_slow_machine_ended() -> None:
    """A process that stood still finds the reply, and that its time is over, together."""
    looks = count()

    async def stalling(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(REPLY)
        if next(looks) < _STALLS:
            stand_still(0.1)
        await reader.read()
        writer.close()

    async with answering(stalling) as engine:
        for _ in range(_STALLS):
            with suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    await engine.gate()

        async with asyncio.timeout(30):
            assert await engine.gate()


def stand_still(seconds: float) -> None:
    """Stop all of this process."""
    time.sleep(seconds)


@asynccontextmanager
async def answering(serve: Serve) -> AsyncIterator[EngineClient]:
    """Give the client of a server."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, EngineClient(url) as engine:
        yield engine
