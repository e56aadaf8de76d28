"""The operator's client against the real sidecar, over a socket in this process.

What the sidecar says is what the operator understands: reports, every problem that these
three calls can meet, silence, and unknown answers.
"""

import asyncio
import gzip
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from rlfleet_contract.worker.commands import PrepareRequest, UpdateRequest
from rlfleet_contract.worker.lora import LoadAdapterRequest
from rlfleet_contract.worker.problems import Code, Problem
from rlfleet_contract.worker.report import Stage, WorkerReport
from rlfleet_operator.errors import Unreachable, WorkerProblem
from rlfleet_operator.workers.client import WorkerClient
from rlfleet_sidecar.app import create_app
from rlfleet_sidecar.settings import SidecarSettings
from tests.fakes.behaviour import Behaviour
from tests.fakes.checkpoints import spoil, write_version
from tests.fakes.engine import FakeEngine
from tests.fakes.serving import Listener
from tests.patience import given_up

TOKEN = "the-fleet-token"
ENGINE_USER = 4711


class Wire(httpx.AsyncBaseTransport):
    """Leads the sidecar to its engine, unless it is cut."""

    def __init__(self, engine: FakeEngine) -> None:
        self._engine = engine
        self.is_cut = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.is_cut:
            raise httpx.ConnectError("the engine is gone")
        inner = httpx.ASGITransport(self._engine.application, client=("127.0.0.1", 1))
        return await inner.handle_async_request(request)


@dataclass
class Pair:
    """A sidecar with its engine, and the operator's client of it."""

    client: WorkerClient
    engine: FakeEngine
    wire: Wire
    weights: Path

    async def prepare(self, version: str) -> WorkerReport:
        request = PrepareRequest(operation=uuid4().hex, version=version, wait_s=0)
        return await self.client.command(TOKEN, request)

    async def update(self, version: str, **fields: Any) -> WorkerReport:
        request = UpdateRequest(operation=uuid4().hex, version=version, **fields)
        return await self.client.command(TOKEN, request)

    async def until(self, is_so: Callable[[WorkerReport], bool]) -> None:
        async with asyncio.timeout(30):
            while not is_so(await self.client.state(TOKEN)):  # noqa: ASYNC110 - it is remote
                await asyncio.sleep(0.01)


@pytest.fixture
async def pair(tmp_path: Path, model: Path, weights: Path) -> AsyncIterator[Pair]:
    (tmp_path / "token").write_text(TOKEN)
    engine = FakeEngine(model, tmp_path / "gate", lambda: None)
    wire = Wire(engine)
    settings = SidecarSettings(
        model_name="fake",
        model_path=model,
        weights_path=f"{weights}/{{version}}",
        token_file=tmp_path / "token",
        state_dir=tmp_path / "state",
        engine_uid=ENGINE_USER,
        poll_s=0.02,
        probe_tokens=2,
    )
    app = create_app(settings, wire)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(app.router.lifespan_context(app))
        client = await stack.enter_async_context(client_of(app))
        made = Pair(client, engine, wire, weights)
        await made.until(lambda report: report.stage is Stage.CLOSED)
        yield made


@asynccontextmanager
async def client_of(
    app: Any, limit: asyncio.Semaphore | None = None
) -> AsyncIterator[WorkerClient]:
    """Serve an application as a sidecar's, with a client of it."""
    listener = Listener(app, "127.0.0.1", 0)
    await listener.start()
    url = f"http://127.0.0.1:{listener.port}"
    client = WorkerClient(url, limit or asyncio.Semaphore(8))
    try:
        yield client
    finally:
        await client.close()
        await listener.stop()


# --- what goes well ---------------------------------------------------------------------------


async def test_a_worker_is_prepared_changed_and_asked(pair: Pair) -> None:
    prepared = await pair.prepare("step-1")
    changed = await pair.update("step-1")
    asked = await pair.client.state(TOKEN)

    assert (prepared.stage, prepared.prepared) == (Stage.CLOSED, "step-1")
    assert (changed.stage, changed.proved) == (Stage.OPEN, "step-1")
    assert not asked.is_news_after(changed)


async def test_what_other_workers_answered_is_demanded(pair: Pair) -> None:
    await pair.prepare("step-1")
    proved = await pair.update("step-1")
    await pair.prepare("step-2")
    assert proved.proof is not None
    # With a digest the version would count as written again, and be rejected before the pause.
    undigested = proved.proof.model_copy(update={"tensors": None})

    with pytest.raises(WorkerProblem) as caught:
        await pair.update("step-2", expected=undigested)

    assert caught.value.problem.code is Code.PROOF_FAILED
    assert (await pair.client.state(TOKEN)).stage is Stage.DOUBT


# --- what the sidecar refuses or fails in -----------------------------------------------------


@pytest.mark.parametrize("token", ["", "another"])
async def test_a_wrong_token_is_a_problem_by_name(pair: Pair, token: str) -> None:
    with pytest.raises(WorkerProblem) as caught:
        await pair.client.state(token)

    assert caught.value.problem.code is Code.UNAUTHORIZED
    assert TOKEN not in str(caught.value)


def _link(weights: Path) -> None:
    (weights / "step-9").symlink_to(weights / "step-1")


def _private(weights: Path) -> None:
    for path in write_version(weights, "step-9", seed=9).iterdir():
        path.chmod(0o600)


def _unfinished(weights: Path) -> None:
    spoil(write_version(weights, "step-9", seed=9), "no marker")


def _truncated(weights: Path) -> None:
    spoil(write_version(weights, "step-9", seed=9), "truncated by half")


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda _: None, Code.VERSION_NOT_FOUND),
        (_unfinished, Code.CHECKPOINT_INCOMPLETE),
        (_truncated, Code.CHECKPOINT_INVALID),
        (_private, Code.CHECKPOINT_UNREADABLE),
        (_link, Code.PATH_REFUSED),
    ],
    ids=lambda value: str(value) if isinstance(value, Code) else "",
)
async def test_a_checkpoint_that_is_refused(
    pair: Pair, make: Callable[[Path], None], code: Code
) -> None:
    make(pair.weights)

    with pytest.raises(WorkerProblem) as caught:
        await pair.prepare("step-9")

    problem = caught.value.problem
    assert (problem.code, problem.version) == (code, "step-9")
    assert problem.retryable is code.retryable
    assert (await pair.client.state(TOKEN)).refusal == problem


@pytest.mark.parametrize(
    ("behaviour", "code"),
    [
        (Behaviour(pause_fails=True), Code.PAUSE_FAILED),
        (Behaviour(flush_fails=True), Code.FLUSH_FAILED),
        (Behaviour(reload_fails=True), Code.RELOAD_FAILED),
        (Behaviour(wobbles=True), Code.PROOF_FAILED),
    ],
    ids=lambda value: str(value) if isinstance(value, Code) else "",
)
async def test_a_change_that_fails(pair: Pair, behaviour: Behaviour, code: Code) -> None:
    await pair.prepare("step-1")
    pair.engine.behaviour = behaviour

    with pytest.raises(WorkerProblem) as caught:
        await pair.update("step-1")

    assert caught.value.problem.code is code
    assert (await pair.client.state(TOKEN)).failure == caught.value.problem


async def test_a_version_that_is_not_prepared(pair: Pair) -> None:
    with pytest.raises(WorkerProblem) as caught:
        await pair.update("step-1")

    assert caught.value.problem.code is Code.NOT_PREPARED


async def test_a_worker_that_is_busy(pair: Pair) -> None:
    await pair.prepare("step-1")
    pair.engine.behaviour = Behaviour(reload_s=0.2)
    change = asyncio.create_task(pair.update("step-1"))
    await pair.until(lambda report: report.stage is Stage.LOADING)

    with pytest.raises(WorkerProblem) as caught:
        await pair.update("step-2")

    assert caught.value.problem.code is Code.BUSY
    assert (await change).proved == "step-1"


async def test_an_engine_that_is_gone(pair: Pair) -> None:
    await pair.prepare("step-1")
    pair.wire.is_cut = True
    await pair.until(lambda report: report.stage is Stage.DOWN)

    with pytest.raises(WorkerProblem) as caught:
        await pair.update("step-1")

    assert caught.value.problem.code is Code.ENGINE_UNREACHABLE


async def test_a_command_that_the_sidecar_does_not_know(pair: Pair) -> None:
    request = PrepareRequest.model_construct(operation="", version="../step-1")

    with pytest.raises(WorkerProblem) as caught:
        await pair.client.command(TOKEN, request)

    assert caught.value.problem.code is Code.INVALID_REQUEST


# --- what any sidecar may answer --------------------------------------------------------------


def answering(status: int, body: bytes, *headers: tuple[bytes, bytes]) -> Any:
    """Make an application that answers the same to everything."""

    async def answer(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return answer


@pytest.mark.parametrize("code", Code)
async def test_every_problem_comes_through_as_it_was_said(code: Code) -> None:
    said = Problem.of(code, "why", version="step-1", operation="rollout-1")

    async with client_of(answering(code.status, said.model_dump_json().encode())) as client:
        with pytest.raises(WorkerProblem) as caught:
            await client.state(TOKEN)

    assert caught.value.problem == said


async def test_an_older_sidecar_gets_no_field_that_it_does_not_know() -> None:
    """Its requests take no other fields; what is not asked for is left out."""
    bodies: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        asked = await receive()
        bodies.append(json.loads(asked["body"]))

        async def received() -> Any:
            return asked

        told = b'{"session": "s", "stage": "Open"}'
        await answering(200, told)(scope, received, send)

    about = {"operation": "a", "version": "v1", "name": "poet", "path": "/weights/poet/v1"}
    digest = "0" * 64

    async with client_of(app) as client:
        await client.command(TOKEN, LoadAdapterRequest.model_validate(about))
        await client.command(TOKEN, LoadAdapterRequest(**about, inherited=digest))

    assert ["inherited" in body for body in bodies] == [False, True]
    assert all(about.items() <= body.items() for body in bodies)


async def test_a_newer_sidecar_may_say_more() -> None:
    report = {"session": "s", "stage": "Open", "proved": "step-1", "later": {"a": 1}}

    async with client_of(answering(200, json.dumps(report).encode())) as client:
        assert (await client.state(TOKEN)).proved == "step-1"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b""),
        (200, b"{}"),
        (200, b"<html>welcome</html>"),
        (200, b'{"session": "s", "stage": "Elsewhere"}'),
        (302, b""),
        (404, b'{"detail": "Not Found"}'),
        (502, b"bad gateway"),
        (503, b'{"code": "Unheard", "message": "m", "retryable": true}'),
    ],
)
async def test_an_answer_that_is_not_in_our_words_is_no_answer(status: int, body: bytes) -> None:
    """The server that answered is not a sidecar of a known version."""
    async with client_of(answering(status, body)) as client:
        with pytest.raises(Unreachable, match=str(status)) as caught:
            await client.state(TOKEN)

    assert TOKEN not in str(caught.value)


async def test_an_address_without_a_server_is_unreachable() -> None:
    client = WorkerClient("http://127.0.0.1:9", asyncio.Semaphore(1))

    with pytest.raises(Unreachable, match="ConnectError"):
        await client.state(TOKEN)

    await client.close()


async def test_silent_workers_hold_up_the_questions_of_others_for_a_moment_only() -> None:
    """Signs of life of other fleets must not wait for workers of a node that is lost."""
    report = b'{"session": "s", "stage": "Down"}'
    limit = asyncio.Semaphore(2)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        silent = [
            WorkerClient(f"http://127.0.0.1:{listening.getsockname()[1]}", limit) for _ in range(6)
        ]
        asking = [asyncio.create_task(client.state(TOKEN)) for client in silent]
        await asyncio.sleep(0)
        async with client_of(answering(200, report), limit) as other, asyncio.timeout(2):
            assert (await other.state(TOKEN)).stage is Stage.DOWN

        await given_up(*asking)
        for client in silent:
            await client.close()
    # Each place was given back once.
    assert not limit.locked()
    await limit.acquire()
    await limit.acquire()
    assert limit.locked()


async def test_silence_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        client = WorkerClient(f"http://127.0.0.1:{port}", asyncio.Semaphore(1))

        with pytest.raises(Unreachable, match=r"^state: ReadTimeout$"):
            await client.state(TOKEN)

        await client.close()


# --- what the client never does ---------------------------------------------------------------


async def test_a_redirect_takes_the_token_nowhere() -> None:
    asked: list[str] = []

    async def elsewhere(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope["path"])
        await answering(200, b'{"session": "s", "stage": "Open"}')(scope, receive, send)

    other = Listener(elsewhere, "127.0.0.1", 0)
    await other.start()
    to = f"http://127.0.0.1:{other.port}/v1/rl/state".encode()
    async with client_of(answering(307, b"", (b"location", to))) as client:
        with pytest.raises(Unreachable, match="307"):
            await client.state(TOKEN)
    await other.stop()

    assert asked == []


async def test_a_reply_is_read_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    report = b'{"session": "s", "stage": "Open"}'
    padded = report + b" " * 4096
    monkeypatch.setattr("rlfleet_operator.workers.client._MOST_BYTES", len(padded) - 1)

    async with client_of(answering(200, padded)) as client:
        with pytest.raises(Unreachable, match="ProtocolError: reply too large"):
            await client.state(TOKEN)
    async with client_of(answering(200, padded[:-1])) as client:
        assert (await client.state(TOKEN)).stage is Stage.OPEN


async def test_a_reply_is_not_unpacked() -> None:
    """No sidecar compresses, and a small reply could become a large one."""
    packed = gzip.compress(b'{"session": "s", "stage": "Open"}')

    async with client_of(answering(200, packed, (b"content-encoding", b"gzip"))) as client:
        with pytest.raises(Unreachable, match="200"):
            await client.state(TOKEN)


async def test_neither_a_proxy_nor_credentials_of_the_environment_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login someone password else\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    seen: list[dict[bytes, bytes]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(dict(scope["headers"]))
        await answering(200, b'{"session": "s", "stage": "Open"}')(scope, receive, send)

    async with client_of(app) as client:
        await client.state(TOKEN)

    assert seen[0][b"authorization"] == f"Bearer {TOKEN}".encode()


async def test_requests_one_after_the_other_share_a_connection() -> None:
    ports: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        ports.append(scope["client"][1])
        await answering(200, b'{"session": "s", "stage": "Open"}')(scope, receive, send)

    async with client_of(app) as client:
        for _ in range(3):
            await client.state(TOKEN)

    assert len(ports) == 3
    assert len(set(ports)) == 1


async def test_a_token_that_no_header_can_carry_is_a_failed_request() -> None:
    async with client_of(answering(200, b"")) as client:
        with pytest.raises(Unreachable, match="ProtocolError"):
            await client.state("two\nlines")
