"""Tricks with paths on a real socket: whatever a server makes of them, the guard stands before.

The engine's server gets peers that come from the network, so nothing of this is let
through because the test runs on this machine.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fastapi import FastAPI, Request

from rlfleet_engine.asgi import Scope, Send
from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.gate.held_request import Receive
from rlfleet_engine.middleware import Extension
from tests.fakes.serving import Listener
from tests.tricks import HEADS, status, tricks_with

CONTROL = ("/pause", "/collective_rpc", "/v1/load_lora_adapter", "/rlfleet/gate", "/rlfleet/exit")


class Engine:
    """All control routes, and what they were reached by."""

    def __init__(self, file: Path) -> None:
        self.reached: list[str] = []
        self.gate = Gate(file, "boot-1")
        self.gate.open()
        app = FastAPI()
        app.add_api_route("/{path:path}", self.answer, methods=["GET", "POST"])
        self.extension = Extension(app, self.gate, lambda: self.reached.append("exit"))

    async def answer(self, request: Request) -> None:
        self.reached.append(str(request.url))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.extension({**scope, "client": ("10.244.0.9", 4000)}, receive, send)


@pytest.fixture
async def listening(tmp_path: Path) -> AsyncIterator[tuple[Engine, int]]:
    engine = Engine(tmp_path / "gate")
    listener = Listener(engine, "127.0.0.1", 0)
    await listener.start()
    yield engine, listener.port
    await listener.stop()


@pytest.mark.parametrize("path", CONTROL)
async def test_no_trick_leads_from_the_network_to_a_control_route(
    listening: tuple[Engine, int], path: str
) -> None:
    engine, port = listening
    seen = {
        (method, target, head): await status("127.0.0.1", port, f"{method} {target}", head)
        for target in tricks_with(path)
        for head in HEADS
        for method in ("GET", "POST")
    }

    assert {told: code for told, code in seen.items() if code not in {400, 404}} == {}
    assert engine.reached == []
    assert engine.gate.is_open


async def test_a_data_route_is_reached_whatever_the_host(listening: tuple[Engine, int]) -> None:
    engine, port = listening

    for head in HEADS:
        assert await status("127.0.0.1", port, "GET /v1/models", head) == 200

    assert len(engine.reached) == len(HEADS)
