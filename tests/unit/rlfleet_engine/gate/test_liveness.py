"""An engine that hangs is dead, one that is paused is not, and a probe never waits long."""

import asyncio
from pathlib import Path

import httpx
import pytest

from rlfleet_engine.asgi import Scope, Send, answer
from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.gate.held_request import Receive
from rlfleet_engine.gate.liveness import Liveness
from rlfleet_engine.middleware import Extension

OK = (200, b'{"status":"ok"}')
DEAD = (503, b'{"status":"engine_unresponsive"}')


class Engine:
    """Answers whether it is healthy, and whether it is paused as far as it does not hang."""

    def __init__(self, file: Path) -> None:
        self.gate = Gate(file, "boot-1")
        self.healthy = 200
        self.paused = 200
        self.answers = asyncio.Event()
        self.answers.set()
        self.asked: list[str] = []

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert await receive() == {"type": "http.request", "body": b"", "more_body": False}
        self.asked.append(scope["path"])
        if scope["path"] == "/health":
            await answer(send, self.healthy, b"")
            return
        assert scope["path"] == "/is_paused"
        await self.answers.wait()
        if self.paused == 0:
            raise ConnectionError
        await answer(send, self.paused, b"")


class Probes:
    """The kubelet, with a clock that can be moved."""

    def __init__(self, engine: Engine) -> None:
        self.now = 0.0
        liveness = Liveness(engine.answer, engine.gate, lambda: self.now, answer_s=0.02)

        async def application(scope: Scope, _receive: Receive, send: Send) -> None:
            await liveness.respond(scope, send)

        transport = httpx.ASGITransport(application)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")

    async def probe(self) -> tuple[int, bytes]:
        async with asyncio.timeout(30):
            reply = await self.client.get("/liveness")
        return reply.status_code, reply.content


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path / "gate")


@pytest.fixture
def probes(engine: Engine) -> Probes:
    return Probes(engine)


async def test_an_engine_that_answers_is_alive(engine: Engine, probes: Probes) -> None:
    engine.gate.open()

    assert await probes.probe() == OK
    assert engine.asked == ["/is_paused"]


async def test_behind_a_closed_gate_nothing_depends_on_its_progress(
    engine: Engine, probes: Probes
) -> None:
    engine.answers.clear()
    for probes.now in (0, 100, 1000):
        assert await probes.probe() == OK
    engine.healthy = 503

    assert await probes.probe() == DEAD
    assert set(engine.asked) == {"/health"}


async def test_an_engine_that_hangs_is_dead_after_a_while(engine: Engine, probes: Probes) -> None:
    engine.gate.open()
    engine.answers.clear()
    seen = []
    for probes.now in (0, 10, 29, 31, 40):
        seen.append(await probes.probe())

    assert seen == [OK, OK, OK, DEAD, DEAD]
    assert len(engine.asked) == 1
    engine.answers.set()
    assert await probes.probe() == OK


async def test_the_time_of_a_change_does_not_count(engine: Engine, probes: Probes) -> None:
    engine.gate.open()
    engine.answers.clear()
    assert await probes.probe() == OK
    probes.now = 100
    engine.gate.close()
    assert await probes.probe() == OK
    probes.now = 120
    engine.gate.open()

    assert await probes.probe() == OK
    probes.now = 131
    assert await probes.probe() == DEAD


@pytest.mark.parametrize("paused", [0, 500])
async def test_an_engine_that_fails_is_dead(engine: Engine, probes: Probes, paused: int) -> None:
    engine.gate.open()
    engine.paused = paused

    assert await probes.probe() == DEAD


async def test_what_was_asked_before_a_change_does_not_count_after_it(
    engine: Engine, probes: Probes
) -> None:
    engine.gate.open()
    engine.answers.clear()
    engine.paused = 500
    assert await probes.probe() == OK
    engine.answers.set()
    await asyncio.sleep(0.01)
    engine.paused = 200

    assert await probes.probe() == OK


async def test_from_the_network_it_is_the_extension_that_answers(engine: Engine) -> None:
    extension = Extension(engine.answer, engine.gate)
    transport = httpx.ASGITransport(extension, client=("10.244.0.1", 4000))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        reply = await client.get("/liveness")

    assert (reply.status_code, reply.content) == OK
    assert reply.headers["content-length"] == str(len(reply.content))


async def test_it_is_asked_with_get_or_head(engine: Engine, probes: Probes) -> None:
    engine.gate.open()

    assert (await probes.client.head("/liveness")).status_code == 200
    assert (await probes.client.post("/liveness")).status_code == 404
