"""Connections that say nothing keep no request from its answer, and end; busy ones stay."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import uvicorn
from uvicorn.server import ServerState

from rlfleet_engine.asgi import Scope, Send, answer
from rlfleet_engine.gate.held_request import Receive
from rlfleet_sidecar.http.connection_limit import protocol

AT_MOST = 4
LIVE = b"GET /live HTTP/1.1\r\nhost: x\r\n\r\n"
Serve = Callable[..., Awaitable["Server"]]
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Server:
    """An application that answers at once, or when it may."""

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.opened: list[Stream] = []
        self.port = 0

    async def answer(self, scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["path"] == "/slow":
            await self.may.wait()
        await answer(send, 200, b"{}")

    async def listen(self, **bounds: float) -> asyncio.Server:
        made = protocol(AT_MOST, **bounds)
        config = uvicorn.Config(
            self.answer,
            interface="asgi3",
            http=made,
            lifespan="off",
            log_config=None,
            access_log=False,
        )
        config.load()
        state = ServerState()
        server = await asyncio.get_running_loop().create_server(
            lambda: made(config, state, {}), "127.0.0.1", 0
        )
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def connect(self, said: bytes = b"") -> Stream:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(said)
        await writer.drain()
        self.opened.append((reader, writer))
        return reader, writer


async def status(stream: Stream) -> int:
    async with asyncio.timeout(10):
        line = await stream[0].readline()
    return int(line.split()[1])


async def is_closed(stream: Stream) -> bool:
    try:
        async with asyncio.timeout(10):
            return await stream[0].read() == b""
    except ConnectionError:
        return True


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    server, listening = Server(), []

    async def served(**bounds: float) -> Server:
        listening.append(await server.listen(**bounds))
        return server

    yield served
    server.may.set()
    for _, writer in server.opened:
        writer.close()
    for one in listening:
        one.close()


async def test_a_probe_is_answered_despite_any_number_of_idle_connections(serve: Serve) -> None:
    server: Server = await serve()
    idle = [await server.connect() for _ in range(AT_MOST * 3)]

    for _time in range(3):
        assert await status(await server.connect(LIVE)) == 200
    assert await is_closed(idle[0])


@pytest.mark.parametrize("said", [b"", b"GET /live HT", LIVE[:-2]], ids=len)
async def test_a_connection_that_does_not_bring_a_request_is_closed(
    serve: Serve, said: bytes
) -> None:
    server: Server = await serve(silent_s=0.1)

    assert await is_closed(await server.connect(said))


async def test_a_connection_that_was_served_may_be_quiet_for_longer_but_not_for_ever(
    serve: Serve,
) -> None:
    server: Server = await serve(silent_s=0.1, keep_alive_s=0.6)
    stream = await server.connect(LIVE)
    await asyncio.sleep(0.2)
    stream[1].write(LIVE)
    assert await status(stream) == 200
    stream[1].write(b"GET /live HT")

    await stream[0].readuntil(b"{}")
    await stream[0].readuntil(b"{}")
    assert await is_closed(stream)


async def test_a_request_under_way_is_not_closed_for_others_or_for_its_time(
    serve: Serve,
) -> None:
    server: Server = await serve(silent_s=0.1, keep_alive_s=0.1)
    slow = await server.connect(LIVE.replace(b"live", b"slow"))
    for _ in range(AT_MOST * 2):
        await server.connect()
    await asyncio.sleep(0.3)
    server.may.set()

    assert await status(slow) == 200
