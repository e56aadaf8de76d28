"""What the operator reads of engines' metrics, over real sockets."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rlfleet_contract import paths
from rlfleet_operator.trainer_api.engine_load import EngineLoads
from tests import workers
from tests.unit.rlfleet_view.recordings import fleet

PIECES = (
    b"# HELP vllm:num_requests_running Number of requests.\n",
    b'vllm:num_requests_running{engine="0"} 3.0\nvllm:num_requests_waiting{engine="0"} 1',
    b'2.0\nvllm:generation_tokens_total{engine="0"} 500.0\n',
)


@pytest.fixture
async def engine(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """An engine whose metrics arrive in pieces, as tens of KiB do, one cut within a number."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\ncontent-length: {sum(map(len, PIECES))}\r\n\r\n"
        try:
            for piece in (head.encode(), *PIECES):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.05)
        finally:
            writer.close()
            ended.set()

    ended = asyncio.Event()
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    monkeypatch.setattr(paths, "ENGINE_PORT", server.sockets[0].getsockname()[1])
    async with server:
        yield
        await ended.wait()
        await asyncio.sleep(0)


async def test_metrics_are_read_to_their_end(engine: None) -> None:
    loads = EngineLoads()

    found = await loads.look(fleet("synced").raw, {"qwen-0": workers.pod(0, address="127.0.0.1")})
    await loads.close()

    [point] = found["points"]
    assert point[2:] == [3.0, 12.0]
    assert found["note"] == ""
