"""The extension before an application that echoes what reached it."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from rlfleet_contract import paths
from rlfleet_contract.engine.gate import GateState
from rlfleet_engine.asgi import Scope, Send
from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.gate.held_request import Receive
from rlfleet_engine.middleware import Extension

NETWORK = ("10.244.0.9", 4000)
LOCAL = ("127.0.0.1", 4000)
PROBE = {paths.PROBE_HEADER: "1"}


class Engine:
    """An application that echoes bodies, slowly if the test says so."""

    def __init__(self, file: Path) -> None:
        self.gate = Gate(file, "boot-1")
        self.ended = 0
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.extension = Extension(self.answer, self.gate, self.end)

    def end(self) -> None:
        self.ended += 1

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.accept"})
            return
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await self.may_end.wait()
        await send({"type": "http.response.body", "body": b"!"})

    def client(self, peer: tuple[str, int]) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(self.extension, client=peer)
        return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path / "gate")


@pytest.fixture
async def network(engine: Engine) -> AsyncIterator[httpx.AsyncClient]:
    async with engine.client(NETWORK) as client:
        yield client


@pytest.fixture
async def local(engine: Engine) -> AsyncIterator[httpx.AsyncClient]:
    async with engine.client(LOCAL) as client:
        yield client


async def moved(
    local: httpx.AsyncClient, action: str, boot: str = "boot-1", version: str | None = None
) -> httpx.Response:
    body = {"action": action, "boot": boot, "version": version}
    return await local.post(paths.GATE_PATH, json=body)


async def test_the_network_gets_for_a_control_route_what_it_gets_for_none(
    network: httpx.AsyncClient,
) -> None:
    transport = httpx.ASGITransport(FastAPI(openapi_url=None))
    async with httpx.AsyncClient(transport=transport, base_url="http://vllm") as vllm:
        unknown = await vllm.get("/no/such/route")

    for method, path in (("POST", "/pause"), ("GET", paths.GATE_PATH), ("POST", paths.EXIT_PATH)):
        reply = await network.request(method, path)
        assert (reply.status_code, reply.content) == (404, unknown.content)
        assert reply.headers == unknown.headers


async def test_this_pod_reaches_control_routes_though_the_gate_is_closed(
    local: httpx.AsyncClient,
) -> None:
    assert (await local.post("/pause", content=b"x")).content == b"x!"


async def test_health_is_answered_though_the_gate_is_closed(network: httpx.AsyncClient) -> None:
    assert (await network.get("/health")).status_code == 200


async def test_only_commands_of_its_boot_move_the_gate(
    engine: Engine, local: httpx.AsyncClient
) -> None:
    told = GateState.model_validate((await local.get(paths.GATE_PATH)).json())
    assert told == GateState(
        boot="boot-1", is_open=False, waiting=0, in_flight=0, has_deadline=True
    )

    refused = await moved(local, "open", boot="boot-0", version="step-9")
    assert (refused.status_code, engine.gate.is_open) == (409, False)
    assert (await moved(local, "open")).json()["is_open"] is True
    assert (await moved(local, "close")).json()["is_open"] is False
    assert engine.gate.holding.version == b""


async def test_the_gate_counts_the_loads_of_its_boot(
    local: httpx.AsyncClient, network: httpx.AsyncClient, tmp_path: Path
) -> None:
    load = {paths.LOAD_HEADER: "1"}
    assert (await network.post("/collective_rpc", headers=load)).status_code == 404
    await local.post("/collective_rpc")
    assert GateState.model_validate((await local.get(paths.GATE_PATH)).json()).is_as_booted

    await local.post("/collective_rpc", headers=load)

    told = GateState.model_validate((await local.get(paths.GATE_PATH)).json())
    assert (told.loads, told.is_as_booted) == (1, False)
    assert Gate(tmp_path / "gate", "boot-2").loads == 0


async def test_a_gate_command_sets_the_version_or_keeps_it(
    engine: Engine, local: httpx.AsyncClient
) -> None:
    told = (await moved(local, "close", version="step-1")).json()
    assert (told["version"], told["is_open"]) == ("step-1", False)

    assert (await moved(local, "open")).json()["version"] == "step-1"
    assert engine.gate.holding.version == b"step-1"
    assert (await moved(local, "open", version="../x")).status_code == 400


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"action":"ajar","boot":"boot-1"}'])
async def test_a_malformed_gate_command_is_refused(
    engine: Engine, local: httpx.AsyncClient, body: bytes
) -> None:
    assert (await local.post(paths.GATE_PATH, content=body)).status_code == 400
    assert not engine.gate.is_open


async def test_the_engine_is_ended_after_the_answer(
    engine: Engine, local: httpx.AsyncClient
) -> None:
    assert (await local.post(paths.EXIT_PATH)).status_code == 202
    assert engine.ended == 1


async def test_requests_wait_at_the_closed_gate_and_lose_nothing(
    engine: Engine, network: httpx.AsyncClient
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b"one ", b"two ", b"three"):
            yield piece
            await asyncio.sleep(0.01)

    request = asyncio.create_task(network.post("/v1/completions", content=pieces()))
    await asyncio.sleep(0.05)
    assert engine.gate.totals() == (1, 0)

    engine.gate.open()

    assert (await request).content == b"one two three!"
    assert engine.gate.totals() == (0, 0)


async def test_a_gate_that_refuses_rejects_waiting_and_new_requests(
    engine: Engine, network: httpx.AsyncClient, local: httpx.AsyncClient
) -> None:
    held = asyncio.create_task(network.post("/v1/completions", content=b"x"))
    await asyncio.sleep(0.02)

    state = GateState.model_validate((await moved(local, "refuse")).json())

    assert (state.is_open, state.is_refusing) == (False, True)
    for reply in (await held, await network.post("/v1/completions", content=b"x")):
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
    assert engine.gate.totals() == (0, 0)
    assert (await moved(local, "close")).json()["is_refusing"] is False
    again = asyncio.create_task(network.post("/v1/completions", content=b"x"))
    await asyncio.sleep(0.02)
    assert not again.done()
    engine.gate.open()
    assert (await again).status_code == 200


async def test_a_request_is_in_flight_until_its_last_byte(
    engine: Engine, network: httpx.AsyncClient
) -> None:
    engine.gate.open()
    engine.may_end.clear()
    request = asyncio.create_task(network.post("/v1/completions", content=b"x"))
    await asyncio.sleep(0.02)
    assert engine.gate.totals() == (0, 1)

    engine.may_end.set()

    await request
    assert engine.gate.totals() == (0, 0)


async def test_only_this_pod_s_probe_passes_a_closed_gate_and_it_is_not_counted(
    engine: Engine, local: httpx.AsyncClient, network: httpx.AsyncClient
) -> None:
    engine.may_end.clear()
    probe = asyncio.create_task(local.post("/v1/completions", headers=PROBE))
    stranger = asyncio.create_task(network.post("/v1/completions", headers=PROBE))
    plain = asyncio.create_task(local.post("/v1/completions"))
    await asyncio.sleep(0.02)

    assert engine.gate.totals() == (2, 0)
    engine.may_end.set()
    assert (await probe).status_code == 200
    engine.gate.open()
    await asyncio.gather(stranger, plain)


class Connection:
    """One raw ASGI connection, for what no client library does."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self._messages: Iterator[dict[str, Any]] = iter(messages)
        self.left = asyncio.Event()
        self.sent: list[Any] = []

    async def receive(self) -> dict[str, Any]:
        for message in self._messages:
            return message
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)


def scope_of(path: str, kind: str = "http", peer: tuple[str, int] = NETWORK) -> Scope:
    return {
        "type": kind,
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "headers": [],
        "client": peer,
    }


async def test_a_client_that_leaves_while_waiting_is_forgotten(engine: Engine) -> None:
    connection = Connection({"type": "http.request", "body": b"x", "more_body": False})
    request = asyncio.create_task(
        engine.extension(scope_of("/v1/completions"), connection.receive, connection.send)
    )
    await asyncio.sleep(0.02)
    assert engine.gate.totals() == (1, 0)

    connection.left.set()

    async with asyncio.timeout(30):
        await request
    await asyncio.sleep(0)
    assert engine.gate.totals() == (0, 0)
    assert connection.sent == []


@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data; boundary=x"])
async def test_a_body_that_is_too_large_is_refused_while_the_gate_is_closed(
    engine: Engine, kind: str
) -> None:
    piece = {"type": "http.request", "body": b"x" * 40, "more_body": True}
    connection = Connection(piece, piece, piece, piece)
    extension = Extension(engine.answer, engine.gate, max_body_bytes=100)
    scope = scope_of("/v1/completions")
    scope["headers"] = [(b"content-type", kind.encode())]

    async with asyncio.timeout(5):
        await extension(scope, connection.receive, connection.send)

    assert connection.sent[0]["status"] == 413
    assert (await connection.receive()) == piece
    await asyncio.sleep(0)
    assert engine.gate.totals() == (0, 0)


async def test_the_engine_sees_a_client_that_disconnects_after_waiting(engine: Engine) -> None:
    connection = Connection({"type": "http.request", "body": b"x", "more_body": True})
    request = asyncio.create_task(
        engine.extension(scope_of("/v1/completions"), connection.receive, connection.send)
    )
    await asyncio.sleep(0.02)
    engine.gate.open()
    await asyncio.sleep(0.02)
    assert engine.gate.totals() == (0, 1)

    connection.left.set()

    async with asyncio.timeout(30):
        await request
    assert engine.gate.totals() == (0, 0)


DENIAL: dict[str, dict[str, Any]] = {"websocket.http.response": {}}


@pytest.mark.parametrize("path", ["/v1/realtime", "/v1/completions", "/pause", "/liveness"])
@pytest.mark.parametrize("peer", [NETWORK, LOCAL])
async def test_no_websocket_is_accepted_whatever_the_gate_says(
    engine: Engine, path: str, peer: tuple[str, int]
) -> None:
    scope = scope_of(path, "websocket", peer)
    for move in (engine.gate.close, engine.gate.open, engine.gate.refuse):
        move()
        plain, told = Connection({"type": "websocket.connect"}), Connection()
        await engine.extension(scope, plain.receive, plain.send)
        await engine.extension({**scope, "extensions": DENIAL}, told.receive, told.send)

        assert plain.sent == [{"type": "websocket.close", "code": 1000, "reason": ""}]
        head, body = told.sent
        assert (head["type"], head["status"]) == ("websocket.http.response.start", 403)
        assert b"/v1/audio/transcriptions" in body["body"]
        assert body["type"] == "websocket.http.response.body"


async def test_a_websocket_that_demands_a_version_is_refused_as_a_websocket(
    engine: Engine,
) -> None:
    asked = Connection({"type": "websocket.connect"})
    scope = scope_of("/v1/realtime", "websocket")
    header = (paths.EXACT_VERSION_HEADER.encode(), b"no such/version")

    await engine.extension({**scope, "headers": [header]}, asked.receive, asked.send)

    assert [message["type"] for message in asked.sent] == ["websocket.close"]


async def test_a_request_that_fails_is_no_longer_in_flight(tmp_path: Path) -> None:
    async def fails(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise ZeroDivisionError

    gate = Gate(tmp_path / "gate", "boot-1")
    gate.open()
    connection = Connection()
    with pytest.raises(ZeroDivisionError):
        await Extension(fails, gate)(scope_of("/tokenize"), connection.receive, connection.send)

    assert gate.totals() == (0, 0)


async def test_the_lifespan_passes(engine: Engine) -> None:
    seen: list[str] = []

    async def application(scope: Scope, _receive: Receive, _send: Send) -> None:
        seen.append(scope["type"])

    connection = Connection()
    extension = Extension(application, engine.gate)
    await extension({"type": "lifespan"}, connection.receive, connection.send)

    assert seen == ["lifespan"]


async def test_a_gate_s_state_is_plain_json(local: httpx.AsyncClient) -> None:
    assert set(json.loads((await local.get(paths.GATE_PATH)).content)) == {
        "boot",
        "is_open",
        "waiting",
        "in_flight",
        "version",
        "is_refusing",
        "is_draining",
        "has_deadline",
        "is_expired",
        "has_unsalted",
        "loads",
    }
