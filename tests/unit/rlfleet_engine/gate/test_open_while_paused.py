"""Requests that read no weights are answered while the weights change, without waiting."""

import asyncio
import json
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rlfleet_contract import paths
from rlfleet_engine.asgi import Scope, Send
from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.gate.held_request import Receive
from rlfleet_engine.middleware import Extension
from rlfleet_engine.rewrite.rewrite import InnerCall

ROUTES = [
    "/tokenize",
    "/detokenize",
    "/v1/messages/count_tokens",
    "/v1/chat/completions/render",
    "/v1/chat/completions/derender",
    "/v1/completions/render",
    "/v1/responses/render",
]
STEP_1, STEP_2 = ({paths.EXACT_VERSION_HEADER: version} for version in ("step-1", "step-2"))
AT_LEAST_2 = {paths.MIN_VERSION_HEADER: "step-2"}


class Engine:
    """An application that echoes, behind a closed gate over a version that is proved."""

    def __init__(self, file: Path) -> None:
        self.gate = Gate(file, "boot-1")
        self.gate.hold("step-1")
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.extension = Extension(self.answer, self.gate, turns={"/tokenize": self.turn})

    async def turn(self, body: bytes, ask: InnerCall) -> None:
        """Ask within, as a conversation that keeps its ids does."""
        await ask("/tokenize", json.loads(body))

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await Request(scope, receive).body()
        await self.may_answer.wait()
        reply = Response(body) if body else JSONResponse({})
        await reply(scope, receive, send)

    async def post(self, path: str, headers: dict[str, str] | None = None) -> httpx.Response:
        transport = httpx.ASGITransport(self.extension, client=("10.0.0.9", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
            async with asyncio.timeout(1):
                return await client.post(path, json={"prompt": "one"}, headers=headers)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path / "gate")


def versions(reply: httpx.Response) -> tuple[str | None, str | None]:
    return reply.headers.get(paths.VERSION_HEADER), reply.headers.get(paths.END_VERSION_HEADER)


@pytest.mark.parametrize("path", ROUTES)
async def test_it_is_answered_at_the_closed_gate_with_the_version_that_is_proved(
    engine: Engine, path: str
) -> None:
    reply = await engine.post(path)

    assert (reply.status_code, reply.json()) == (200, {"prompt": "one"})
    assert versions(reply) == ("step-1", "step-1")
    assert engine.gate.totals() == (0, 0)


@pytest.mark.parametrize("path", ROUTES)
async def test_it_is_answered_while_weights_are_on_trial_and_after_they_failed(
    engine: Engine, path: str
) -> None:
    engine.gate.begin_trial("step-2")
    on_trial = await engine.post(path)
    engine.gate.fail_trial()
    failed = await engine.post(path)

    for reply in (on_trial, failed):
        assert (reply.status_code, reply.json()) == (200, {"prompt": "one"})
        assert versions(reply) == (None, None)


async def test_a_trial_that_begins_later_does_not_withhold_a_reply(engine: Engine) -> None:
    engine.gate.open()
    engine.may_answer.clear()
    request = asyncio.create_task(engine.post("/v1/completions/render"))
    await asyncio.sleep(0.02)
    assert not request.done()
    assert engine.gate.totals() == (0, 0), "no change waits for it"
    engine.gate.close()
    engine.gate.begin_trial("step-2")
    engine.may_answer.set()

    reply = await request

    assert (reply.status_code, versions(reply)) == (200, ("step-1", None))


@pytest.mark.parametrize(
    ("demand", "proved", "on_trial"),
    [(STEP_1, 200, 409), (STEP_2, 409, 409), (AT_LEAST_2, 409, 409)],
    ids=["what it held", "what is tried", "at least what is tried"],
)
async def test_a_demand_is_checked_against_the_proved_version_without_waiting(
    engine: Engine, demand: dict[str, str], proved: int, on_trial: int
) -> None:
    before = await engine.post("/tokenize", demand)
    engine.gate.begin_trial("step-2")
    meanwhile = await engine.post("/tokenize", demand)

    assert (before.status_code, meanwhile.status_code) == (proved, on_trial)
    assert meanwhile.headers["retry-after"] == "1"
    assert meanwhile.json()["version"] is None


async def test_a_worker_that_turns_requests_away_turns_these_away_too(engine: Engine) -> None:
    engine.gate.refuse()

    assert (await engine.post("/tokenize")).status_code == 503


async def test_what_computes_still_waits(engine: Engine) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await engine.post("/v1/completions")
