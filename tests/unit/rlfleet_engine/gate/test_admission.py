"""A gate that admits requests during a trial: replies wait for the proof, and none is lost."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from rlfleet_contract import paths
from rlfleet_contract.engine.gate import GateCommand
from rlfleet_engine.gate.commands import apply
from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.middleware import Extension

BODY = {"prompt": "one", "cache_salt": "mine"}


class Engine:
    """Answers each request with the version that its weights had when it came."""

    def __init__(self, file: Path) -> None:
        self.gate = Gate(file, "boot-1")
        self.came: list[tuple[str, dict[str, Any]]] = []
        self.may_answer = asyncio.Event()
        app = FastAPI()
        app.add_api_route("/v1/{path}", self.answer, methods=["POST"])
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(Extension(self._raising(app), self.gate)),
            base_url="http://127.0.0.1",
        )
        self.act("open", version="step-1")
        self.act("close")
        self.act("try", version="step-2")

    def act(self, action: Any, version: str | None = None) -> None:
        apply(self.gate, GateCommand(action=action, boot="boot-1", version=version))

    async def answer(self, path: str, request: Request) -> Response:
        version = self.gate.holding.version.decode()
        self.came.append((version, await request.json()))
        if path == "invalid" or (path == "not-finite" and version == "step-2"):
            return JSONResponse({"error": {"message": "no"}}, 400)
        if path == "stream":
            return StreamingResponse(self._events(version), media_type="text/event-stream")
        await self.may_answer.wait()
        if path == "aborted" and version == "step-2":
            return JSONResponse({"error": {"message": "aborted"}}, 500)
        return JSONResponse({"choices": [{"text": version, "finish_reason": "length"}]})

    def _raising(self, app: FastAPI) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
        """Return the app, with a path that weights on trial raise on, as vLLM can."""

        async def answering(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["path"] == "/v1/raises" and self.gate.holding.version == b"step-2":
                self.came.append(("step-2", BODY))
                raise ValueError("not finite")
            await app(scope, receive, send)

        return answering

    async def _events(self, version: str) -> AsyncIterator[str]:
        yield f'data: {{"choices":[{{"text":"{version}","finish_reason":null}}]}}\n\n'
        await self.may_answer.wait()
        yield "data: [DONE]\n\n"

    async def ask(self, path: str = "completions", **headers: str) -> httpx.Response:
        return await self.client.post(f"/v1/{path}", json=BODY, headers=headers)

    def fail(self) -> None:
        """Fail the trial, and abort what is in the engine, as the sidecar does."""
        self.act("fail")
        self.may_answer.set()

    def prove_next(self) -> None:
        """Prove another version, and open."""
        for action, version in (("try", "step-3"), ("pass", None), ("open", "step-3")):
            self.act(action, version)


async def is_waiting(request: "asyncio.Task[Any]") -> bool:
    done, _ = await asyncio.wait([request], timeout=0.05)
    return not done


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path / "gate")


@pytest.mark.parametrize("path", ["completions", "stream"])
async def test_a_request_is_computed_on_trial_and_answered_once_that_is_proved(
    engine: Engine, path: str
) -> None:
    request = asyncio.create_task(engine.ask(path))
    assert await is_waiting(request)
    assert engine.came == []

    engine.act("admit")
    engine.may_answer.set()

    assert await is_waiting(request)
    assert [version for version, _ in engine.came] == ["step-2"]
    engine.act("pass")
    reply = await request
    assert "step-2" in reply.text
    assert reply.headers[paths.VERSION_HEADER] == "step-2"


@pytest.mark.parametrize("path", ["completions", "stream", "aborted", "not-finite", "raises"])
async def test_a_trial_that_fails_loses_no_request_and_sends_nothing(
    engine: Engine, path: str
) -> None:
    engine.act("admit")
    request = asyncio.create_task(engine.ask(path))
    assert await is_waiting(request)

    engine.fail()

    assert await is_waiting(request)
    assert engine.gate.totals() == (1, 0)
    engine.prove_next()
    reply = await request
    assert reply.status_code == 200
    assert "step-3" in reply.text
    assert "step-2" not in reply.text
    assert "abort" not in reply.text
    (first, before), (second, after) = engine.came
    assert (first, second) == ("step-2", "step-3")
    assert (before["prompt"], after["prompt"]) == ("one", "one")
    # The salt of the caches belongs to a version.
    assert path == "raises" or before["cache_salt"] != after["cache_salt"]


async def test_after_a_trial_that_failed_requests_are_rejected_if_the_gate_rejects(
    engine: Engine,
) -> None:
    engine.act("admit")
    request = asyncio.create_task(engine.ask())
    assert await is_waiting(request)

    engine.fail()
    engine.act("refuse")

    assert (await request).status_code == 503


async def test_an_error_waits_for_the_proof_too(engine: Engine) -> None:
    """It may come of weights whose log probabilities are not finite."""
    engine.act("admit")
    request = asyncio.create_task(engine.ask("invalid"))
    assert await is_waiting(request)

    engine.act("pass")

    assert (await request).status_code == 400


async def test_what_is_raised_on_trial_is_raised_once_that_is_proved(engine: Engine) -> None:
    engine.act("admit")
    request = asyncio.create_task(engine.ask("raises"))
    assert await is_waiting(request)

    engine.act("pass")

    with pytest.raises(ValueError, match="not finite"):
        await request


async def test_a_request_with_a_demand_waits_for_an_open_gate(engine: Engine) -> None:
    """On trial it might be rejected for a version that is never served."""
    engine.act("admit")
    request = asyncio.create_task(engine.ask(**{paths.EXACT_VERSION_HEADER: "step-3"}))
    assert await is_waiting(request)
    assert engine.came == []

    engine.may_answer.set()
    engine.prove_next()

    assert (await request).headers[paths.VERSION_HEADER] == "step-3"


async def test_a_client_that_leaves_on_trial_is_not_asked_for_again(engine: Engine) -> None:
    engine.act("admit")
    request = asyncio.create_task(engine.ask())
    assert await is_waiting(request)

    request.cancel()
    await asyncio.wait([request])
    engine.fail()
    engine.prove_next()
    await asyncio.sleep(0.05)

    assert len(engine.came) == 1
    assert engine.gate.totals() == (0, 0)


@pytest.mark.parametrize(
    ("actions", "is_admitting"),
    [
        (["admit"], True),
        (["admit", "pass"], True),
        (["admit", "keep"], True),
        (["admit", "fail"], False),
        (["admit", "close"], False),
        (["admit", "try"], False),
        (["admit", "refuse"], False),
        (["fail", "admit"], False),
        (["pass", "admit"], False),
        (["pass", "open", "admit"], False),
    ],
)
def test_only_a_trial_admits_and_any_other_command_ends_that(
    engine: Engine,
    actions: list[str],
    is_admitting: bool,  # noqa: FBT001 - of a table
) -> None:
    for action in actions:
        engine.act(action)

    assert engine.gate.is_admitting is is_admitting
    assert engine.gate.is_open is (actions[-2:] == ["open", "admit"])
