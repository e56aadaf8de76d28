"""Safety without any rewriting: the guard, the gate, demands and replies stand alone."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from rlfleet_contract import paths
from rlfleet_engine.asgi import Scope, Send, compact
from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.gate.held_request import HeldRequest, Receive
from rlfleet_engine.gate.shaper import Shaped, Shaper
from rlfleet_engine.safety import Safety

BODIES = {
    "/v1/chat/completions": b'{ "cache_salt": "a", "prompt_token_ids": [1] }',
    "/v1/completions": b'{"nvext": {"extra_fields": ["token_ids"]}}',
    "/v1/responses": b'{"background": true}',
    "/v1/embeddings": b'{"input": "x"}',
}
AT_LEAST_2 = {paths.MIN_VERSION_HEADER: "step-2"}


class Engine:
    """An application that keeps what reached it, under safety alone."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.gate = Gate(file, "boot-1")
        self.gate.hold("step-1")
        self.gate.open()
        self.came: list[tuple[str, bytes]] = []
        self.receives: list[Receive] = []
        self.safety = Safety(self.answer, self.gate, lambda: None)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.receives.append(receive)
        self.came.append((scope["path"], (await receive())["body"]))
        head = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": b"{}"})


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path / "gate")


@pytest.fixture
async def client(engine: Engine) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(engine.safety, client=("10.0.0.9", 1))
    async with httpx.AsyncClient(
        transport=transport,
        base_url="http://engine",
        headers={"content-type": "application/json"},
    ) as made:
        yield made


def test_it_is_imported_without_any_rewriting() -> None:
    code = "import sys, rlfleet_engine.safety; print(*sorted(sys.modules))"
    words = (sys.executable, "-c", code)
    cwd = Path(__file__).resolve().parents[3] / "sidecar"

    loaded = subprocess.run(words, cwd=cwd, check=True, capture_output=True, text=True)

    names = loaded.stdout.split()
    assert "rlfleet_engine.gate.gate" in names
    assert [name for name in names if name.startswith("rlfleet_engine.rewrite")] == []


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("is_open", [True, False], ids=["open", "closed at first"])
async def test_each_body_reaches_vllm_as_it_came(
    engine: Engine, client: httpx.AsyncClient, path: str, *, is_open: bool
) -> None:
    if not is_open:
        engine.gate.close()
    engine.gate.begin_era()
    request = asyncio.create_task(client.post(path, content=BODIES[path]))
    if not is_open:
        await asyncio.sleep(0.02)
        assert (engine.gate.totals(), engine.came) == ((1, 0), [])
        engine.gate.hold("step-2")
        engine.gate.open()

    reply = await request

    assert engine.came == [(path, BODIES[path])]
    held = "step-1" if is_open else "step-2"
    told = reply.headers[paths.VERSION_HEADER], reply.headers[paths.END_VERSION_HEADER]
    assert told == (held, held)
    assert engine.gate.totals() == (0, 0)


async def test_at_the_open_gate_vllm_itself_receives_from_the_server(engine: Engine) -> None:
    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(_message: object) -> None:
        pass

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/completions",
        "headers": [(b"content-type", b"application/json")],
    }
    await engine.safety(scope, receive, send)

    assert engine.receives == [receive]


@pytest.mark.parametrize("path", ["/tokenize", "/v1/chat/completions/render"])
async def test_what_computes_nothing_is_answered_at_the_closed_gate(
    engine: Engine, client: httpx.AsyncClient, path: str
) -> None:
    engine.gate.close()

    assert (await client.post(path, content=b"{}")).status_code == 200
    assert not engine.gate.has_unsalted


async def test_guard_demand_and_stored_responses_are_kept(
    engine: Engine, client: httpx.AsyncClient
) -> None:
    replies = [
        await client.post("/pause"),
        await client.post("/v1/completions", content=b"{}", headers=AT_LEAST_2),
        await client.get("/v1/responses/resp_1"),
    ]

    assert [reply.status_code for reply in replies] == [404, 409, 400]
    assert engine.came == []


@pytest.mark.parametrize("name", ["input_tokens", "compact", "render"])
async def test_a_route_below_responses_that_reads_none_reaches_vllm(
    client: httpx.AsyncClient, name: str
) -> None:
    path = f"/v1/responses/{name}"

    assert (await client.post(path, content=b"{}")).status_code == 200
    assert (await client.post(f"{path}/cancel", content=b"{}")).status_code == 400


async def test_whatever_computes_keeps_the_caches_from_being_kept(
    engine: Engine, client: httpx.AsyncClient
) -> None:
    await client.get("/v1/models")
    assert not Gate(engine.file, "boot-1").has_unsalted

    await client.post("/v1/completions", content=compact({"cache_salt": "a"}))

    assert Gate(engine.file, "boot-1").has_unsalted


@dataclass(frozen=True)
class Closing(Shaper):
    """A shaper that reads one route's bodies, and a gate that closes while it makes the first."""

    engine: Engine
    read: list[bytes] = field(default_factory=list)
    taken: list[bytes] = field(default_factory=list)

    def must_read(self, scope: Scope) -> bool:
        path: str = scope["path"]
        return path == "/v1/completions"

    def is_unsalted(self, _scope: Scope) -> bool:
        return False

    async def shaped(self, scope: Scope, body: bytes) -> Shaped:
        self.read.append(body)
        self.engine.gate.close()
        shaper = self

        class Salted(Shaped):
            def scope_into(self, held: HeldRequest, gate: Gate) -> Scope:
                shaper.taken.append(gate.holding.version)
                held.replace(gate.holding.version)
                return self.scope

        return Salted(self.app, scope)


async def test_a_request_is_shaped_once_and_salted_for_the_version_that_answers(
    engine: Engine,
) -> None:
    shaper = Closing(engine.answer, engine)
    safety = Safety(engine.answer, engine.gate, lambda: None, shaper=shaper)
    transport = httpx.ASGITransport(safety, client=("10.0.0.9", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
        request = asyncio.create_task(client.post("/v1/completions", json={"a": 1}))
        await asyncio.sleep(0.02)
        assert (engine.gate.totals(), shaper.taken) == ((1, 0), [])
        engine.gate.hold("step-2")
        engine.gate.open()
        reply = await request
        await client.post("/v1/embeddings", json={"b": 2})

    assert [json.loads(body) for body in shaper.read] == [{"a": 1}]
    assert shaper.taken == [b"step-2"]
    assert engine.came[0] == ("/v1/completions", b"step-2")
    assert reply.headers[paths.VERSION_HEADER] == "step-2"
    assert engine.gate.totals() == (0, 0)
