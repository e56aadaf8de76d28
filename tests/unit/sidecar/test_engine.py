"""The client of vLLM, where the fake engine cannot go."""

import asyncio

import pytest

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
            async with asyncio.timeout(5):
                await pausing
    for writer in held:
        writer.close()
