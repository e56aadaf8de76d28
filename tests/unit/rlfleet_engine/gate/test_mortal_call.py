"""A call of the engine ends with its core: vLLM waits for ever for the reply of one that died."""

import asyncio
from pathlib import Path

import pytest

from rlfleet_engine.asgi import Scope, Send, answer
from rlfleet_engine.control import Control
from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.gate.held_request import Message, Receive
from rlfleet_engine.gate.mortal_call import ends

LOOK_S, GRACE_S = 0.01, 0.05
SCOPE: Scope = {"type": "http", "method": "POST", "path": "/collective_rpc", "headers": []}


class Core:
    """Reports whether it is dead, and answers no call once it is."""

    def __init__(self, *, is_dead: bool) -> None:
        self.is_dead = is_dead
        self.was_cancelled = False

    async def app(self, scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["path"] == "/health":
            await answer(send, 503 if self.is_dead else 200, b"")
            return
        await self.call(60 if self.is_dead else 0)
        await answer(send, 200, b"{}")

    async def call(self, long_s: float) -> None:
        try:
            await asyncio.sleep(long_s)
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


async def test_a_call_under_way_is_cancelled_once_the_core_is_dead_for_long() -> None:
    core = Core(is_dead=True)

    async with asyncio.timeout(5):
        assert not await ends(core.app, SCOPE, core.call(60), LOOK_S, GRACE_S)

    assert core.was_cancelled


async def test_a_long_call_of_a_core_that_lives_is_awaited() -> None:
    core = Core(is_dead=False)

    assert await ends(core.app, SCOPE, core.call(4 * GRACE_S), LOOK_S, GRACE_S)

    assert not core.was_cancelled


async def test_a_core_that_is_back_in_time_is_awaited() -> None:
    core = Core(is_dead=True)
    waiting = asyncio.create_task(ends(core.app, SCOPE, core.call(1), LOOK_S, 0.5))
    await asyncio.sleep(0.1)
    core.is_dead = False

    assert await waiting


async def test_the_error_of_a_call_is_kept() -> None:
    async def failing() -> None:
        raise ValueError("from vLLM")

    with pytest.raises(ValueError, match="from vLLM"):
        await ends(Core(is_dead=False).app, SCOPE, failing(), LOOK_S, GRACE_S)


@pytest.mark.timeout(30)
async def test_the_server_is_free_of_the_sidecar_s_call_and_says_why(tmp_path: Path) -> None:
    """With the times of production."""
    core, sent = Core(is_dead=True), list[Message]()

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    control = Control(core.app, Gate(tmp_path / "gate", "boot-1"), lambda: None)
    async with asyncio.timeout(20):
        await control.answer(dict(SCOPE), receive, send)

    assert core.was_cancelled
    assert sent[0]["status"] == 500
    assert b"died" in sent[1]["body"]
