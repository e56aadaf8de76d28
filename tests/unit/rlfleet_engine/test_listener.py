"""The servers that stand in for a worker's leave nothing open when they end."""

import asyncio
import gc
import socket

from rlfleet_engine.asgi import Scope, Send
from rlfleet_engine.gate.held_request import Receive
from tests.fakes.serving import Listener


async def answer(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def test_a_connection_that_comes_as_the_server_ends_is_not_lost() -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: complaints.append(about))

    for turns in range(12):
        listener = Listener(answer, "127.0.0.1", 0)
        await listener.start()
        with socket.create_connection(("127.0.0.1", listener.port)):
            for _ in range(turns % 4):
                await asyncio.sleep(0)
            await listener.stop()

    # A lost exception is reported when it is collected, and a warning fails a test here.
    gc.collect()
    assert complaints == []
