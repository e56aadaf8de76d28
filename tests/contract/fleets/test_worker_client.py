"""The operator's client against the real sidecar, both in this process.

What the sidecar says is what the operator understands: reports, every problem that these
three calls can meet, silence, and unknown answers.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from fastapi import FastAPI

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
        client = client_of(app)
        stack.push_async_callback(client.close)
        made = Pair(client, engine, wire, weights)
        await made.until(lambda report: report.stage is Stage.CLOSED)
        yield made


def client_of(app: Any, url: str = "http://qwen-0") -> WorkerClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return WorkerClient(url, asyncio.Semaphore(8), transport)


# --- what goes well ---------------------------------------------------------------------------


async def test_a_worker_is_prepared_changed_and_asked(pair: Pair) -> None:
    prepared = await pair.prepare("step-1")
    changed = await pair.update("step-1")
    asked = await pair.client.state(TOKEN)

    assert (prepared.stage, prepared.prepared) == (Stage.CLOSED, "step-1")
    assert (changed.stage, changed.proved) == (Stage.OPEN, "step-1")
    assert asked == changed


async def test_what_other_workers_answered_is_demanded(pair: Pair) -> None:
    await pair.prepare("step-1")
    proved = await pair.update("step-1")
    await pair.prepare("step-2")

    with pytest.raises(WorkerProblem) as caught:
        await pair.update("step-2", expected=proved.proof)

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


def answering(status: int, body: bytes) -> FastAPI:
    """Make an application that answers the same to everything."""

    async def answer(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": body})

    return answer  # type: ignore[return-value]


@pytest.mark.parametrize("code", Code)
async def test_every_problem_comes_through_as_it_was_said(code: Code) -> None:
    said = Problem.of(code, "why", version="step-1", operation="rollout-1")
    client = client_of(answering(code.status, said.model_dump_json().encode()))

    with pytest.raises(WorkerProblem) as caught:
        await client.state(TOKEN)

    assert caught.value.problem == said
    await client.close()


async def test_an_older_sidecar_gets_no_field_that_it_does_not_know() -> None:
    """Its requests take no other fields; what is not asked for is left out."""
    bodies: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        bodies.append(json.loads((await receive())["body"]))
        told = b'{"session": "s", "stage": "Open"}'
        await answering(200, told)(scope, receive, send)

    client = client_of(app)
    about = {"operation": "a", "version": "v1", "name": "poet", "path": "/weights/poet/v1"}
    digest = "0" * 64

    await client.command(TOKEN, LoadAdapterRequest.model_validate(about))
    await client.command(TOKEN, LoadAdapterRequest(**about, inherited=digest))
    await client.close()

    assert ["inherited" in body for body in bodies] == [False, True]
    assert all(about.items() <= body.items() for body in bodies)


async def test_a_newer_sidecar_may_say_more() -> None:
    report = {"session": "s", "stage": "Open", "proved": "step-1", "later": {"a": 1}}
    client = client_of(answering(200, json.dumps(report).encode()))

    assert (await client.state(TOKEN)).proved == "step-1"
    await client.close()


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
    client = client_of(answering(status, body))

    with pytest.raises(Unreachable, match=str(status)) as caught:
        await client.state(TOKEN)

    assert TOKEN not in str(caught.value)
    await client.close()


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
        other = WorkerClient("http://worker", limit, httpx.ASGITransport(answering(200, report)))

        async with asyncio.timeout(2):
            assert (await other.state(TOKEN)).stage is Stage.DOWN

        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        for client in (other, *silent):
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

        with pytest.raises(Unreachable, match="ReadTimeout"):
            await client.state(TOKEN)

        await client.close()
