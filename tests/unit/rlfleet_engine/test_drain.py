"""An engine's container that ends waits for its requests, and not for ever."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
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


_PROCESS = """\
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
core = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("started", flush=True)
sys.exit(f"the core ended: {core.wait()}")
"""


@pytest.fixture
def starting() -> Iterator[subprocess.Popen[str]]:
    """Yield what a starting engine is: deaf to SIGTERM, and waiting for its core."""
    argv = [sys.executable, "-c", _PROCESS, "vllm"]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        yield process
        process.kill()


def test_an_engine_that_does_not_serve_yet_ends_at_once(
    starting: subprocess.Popen[str], tmp_path: Path
) -> None:
    log = tmp_path / "termination-log"
    log.touch()

    drain.end_start("127.0.0.1", 1, 5, starting.pid, log)

    assert starting.wait(timeout=5) == 1
    assert log.read_text().startswith("ended before it served")


def test_an_engine_that_serves_ends_by_its_signal(
    starting: subprocess.Popen[str], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        drain.end_start("127.0.0.1", server.getsockname()[1], 5, starting.pid, tmp_path / "none")

    assert starting.poll() is None


def test_no_other_program_is_touched(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", _PROCESS]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "started\n"

        drain.end_start("127.0.0.1", 1, 5, other.pid, tmp_path / "none")

        assert other.poll() is None
        other.kill()
