"""Nothing goes out that may come from weights on trial, and what failed ends with a marker."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.responses import JSONResponse, Response, StreamingResponse

from rlfleet_contract import paths
from rlfleet_engine.gate.gate import Gate, ProofState
from rlfleet_engine.middleware import Extension
from rlfleet_engine.reply.abort_marker import UnmarkableError, marked, marked_events

CHOICES = [{"index": 0, "finish_reason": "length", "text": "one"}, {"index": 1, "text": "two"}]


class Engine:
    """Answers each route once it may, as vLLM does."""

    def __init__(self, file: Path) -> None:
        self.gate = Gate(file, "boot-1")
        self.gate.hold("step-1")
        self.gate.open()
        self.may_answer = asyncio.Event()
        self.app = app = FastAPI()
        app.add_api_route("/v1/{path}", self.answer, methods=["POST"])
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(Extension(app, self.gate)), base_url="http://127.0.0.1"
        )

    async def answer(self, path: str) -> Response:
        if path == "stream":
            return StreamingResponse(self._events(), media_type="text/event-stream")
        await self.may_answer.wait()
        if path == "embeddings":
            return JSONResponse({"data": [0.5]})
        if path == "refused":
            return JSONResponse({"error": {"message": "no"}}, 400)
        return JSONResponse({"choices": CHOICES})

    async def _events(self) -> AsyncIterator[str]:
        yield event(None)
        await self.may_answer.wait()
        yield event(None) + event("length")
        yield "data: [DONE]\n\n"

    async def in_trial(self, path: str = "completions") -> "asyncio.Task[httpx.Response]":
        """Have a request answered by weights on trial; return it, not answered yet."""
        request = asyncio.create_task(self.client.post(f"/v1/{path}"))
        await asyncio.sleep(0.02)
        self.gate.close()
        self.gate.begin_trial("step-2")
        self.may_answer.set()
        return request


def event(reason: str | None) -> str:
    choice = {"index": 0, "finish_reason": reason, "text": "one"}
    return f"data: {json.dumps({'choices': [choice]}, separators=(',', ':'))}\n\n"


async def is_withheld(request: "asyncio.Task[Any]") -> bool:
    done, _ = await asyncio.wait([request], timeout=0.05)
    return not done


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path / "gate")


async def test_an_answer_made_on_trial_goes_out_once_the_weights_are_proved(
    engine: Engine,
) -> None:
    request = await engine.in_trial()
    assert await is_withheld(request)

    engine.gate.end_trial(is_proved=True)

    reply = await request
    assert reply.json() == {"choices": CHOICES}
    assert reply.headers[paths.END_VERSION_HEADER] == "step-2"
    assert not engine.gate.is_open


async def test_an_answer_made_by_weights_that_failed_ends_with_the_marker(engine: Engine) -> None:
    request = await engine.in_trial()

    engine.gate.end_trial(is_proved=False)

    reply = await request
    one, other = reply.json()["choices"]
    assert (one["finish_reason"], one["text"]) == ("abort", "one")
    assert other == CHOICES[1]
    assert reply.headers["content-length"] == str(len(reply.content))


async def test_an_answer_that_comes_after_the_next_trial_has_the_marker_too(
    engine: Engine,
) -> None:
    engine.may_answer.clear()
    request = asyncio.create_task(engine.client.post("/v1/completions"))
    await asyncio.sleep(0.02)
    engine.gate.begin_trial("step-2")
    engine.gate.end_trial(is_proved=False)
    engine.gate.hold("step-1")
    engine.gate.open()

    engine.may_answer.set()

    assert (await request).json()["choices"][0]["finish_reason"] == "abort"
    later = await engine.client.post("/v1/completions")
    assert later.json() == {"choices": CHOICES}


async def test_an_answer_without_a_place_for_the_marker_is_to_be_asked_for_again(
    engine: Engine,
) -> None:
    request = await engine.in_trial("embeddings")

    engine.gate.end_trial(is_proved=False)

    reply = await request
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
    assert "failed their proof" in reply.json()["error"]["message"]


async def test_an_error_does_not_wait(engine: Engine) -> None:
    request = await engine.in_trial("refused")

    assert (await request).status_code == 400


@pytest.mark.parametrize(("is_proved", "end"), [(True, "length"), (False, "abort")])
async def test_what_is_streamed_is_withheld_and_ends_as_the_trial_does(
    engine: Engine, *, is_proved: bool, end: str
) -> None:
    request = await engine.in_trial("stream")
    assert await is_withheld(request)

    engine.gate.end_trial(is_proved=is_proved)

    reply = await request
    assert reply.text == event(None) * 2 + event(end) + "data: [DONE]\n\n"


async def test_a_client_that_leaves_while_its_answer_is_withheld_is_forgotten(
    engine: Engine,
) -> None:
    request = await engine.in_trial()
    assert engine.gate.totals() == (0, 1)

    request.cancel()
    await asyncio.sleep(0.02)

    assert engine.gate.totals() == (0, 0)


def test_each_trial_is_a_change_and_one_without_an_end_failed(
    tmp_path: Path,
) -> None:
    gate = Gate(tmp_path / "gate", "boot-1")
    gate.open()
    assert gate.standing(0) is ProofState.PROVED
    gate.begin_trial("step-1")
    assert (gate.standing(0), gate.standing(1)) == (ProofState.ON_TRIAL, ProofState.ON_TRIAL)

    gate.begin_trial("step-1")
    gate.end_trial(is_proved=True)

    assert gate.holding == (b"step-1", 2)
    assert [gate.standing(began) for began in range(3)] == [
        ProofState.FAILED,
        ProofState.FAILED,
        ProofState.PROVED,
    ]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"choices": 1}', b"text"])
def test_what_has_no_choices_cannot_be_marked(body: bytes) -> None:
    with pytest.raises(UnmarkableError):
        marked(body)
    if body:
        with pytest.raises(UnmarkableError):
            marked_events(b"data: " + body + b"\n\n")
