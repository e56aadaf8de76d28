"""An engine's container that ends waits for its requests, and not for ever."""

import asyncio
import socket
from pathlib import Path

import pytest

from rlfleet_engine import drain
from tests.fakes.checkpoints import write_model
from tests.fakes.engine import FakeEngine
from tests.fakes.serving import Listener


@pytest.fixture
def engine(tmp_path: Path) -> FakeEngine:
    return FakeEngine(write_model(tmp_path / "model"), tmp_path / "gate", lambda: None)


async def test_it_waits_until_no_request_runs(engine: FakeEngine) -> None:
    listener = Listener(engine.application, "127.0.0.1", 0)
    await listener.start()
    with engine.gate.passing():
        waiting = asyncio.create_task(
            asyncio.to_thread(drain.drain, "127.0.0.1", listener.port, 60, withdrawn_s=0)
        )
        done, _ = await asyncio.wait([waiting], timeout=0.1)
        assert not done

    assert await waiting is True
    await listener.stop()


async def test_it_does_not_wait_longer_than_it_may(engine: FakeEngine) -> None:
    listener = Listener(engine.application, "127.0.0.1", 0)
    await listener.start()
    with engine.gate.passing():
        idle = await asyncio.to_thread(drain.drain, "127.0.0.1", listener.port, 0.1, withdrawn_s=0)
    assert idle is False
    await listener.stop()


def test_an_engine_that_is_gone_needs_no_wait() -> None:
    assert drain.main(["--seconds", "0", "--port", "1"]) == 0


async def test_it_sets_the_gate_to_draining_at_once_and_moves_nothing(engine: FakeEngine) -> None:
    listener = Listener(engine.application, "127.0.0.1", 0)
    await listener.start()
    engine.gate.open()

    idle = await asyncio.to_thread(drain.drain, "127.0.0.1", listener.port, 0.1, withdrawn_s=0)

    assert (idle, engine.gate.is_draining, engine.gate.is_open) == (True, True, True)
    await listener.stop()
    engine.boot()
    assert not engine.gate.is_draining


def test_a_server_that_is_busy_for_a_while_still_has_its_requests() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]

        assert drain.left("127.0.0.1", port, answer_s=0.05) is None
        assert drain.drain("127.0.0.1", port, 0.2, withdrawn_s=0, answer_s=0.05) is False
