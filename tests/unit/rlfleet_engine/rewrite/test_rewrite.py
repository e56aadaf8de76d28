"""Replies that are turned on their way back: whole ones, streams, errors."""

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest

from rlfleet_contract import paths
from rlfleet_engine.asgi import Scope, Send, compact
from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.gate.held_request import Receive
from rlfleet_engine.json_body import FieldError
from rlfleet_engine.middleware import Extension
from rlfleet_engine.rewrite.rewrite import (
    IncompleteReplyError,
    InnerCall,
    ReplyRewrite,
    RequestRewrite,
    RewritingSend,
)

STREAM = [(b"content-type", b"text/event-stream; charset=utf-8")]
PATH = "/v1/turned"


class Louder(ReplyRewrite):
    """Makes every reply louder."""

    def whole(self, body: bytes) -> bytes:
        if b"silence" in body:
            raise IncompleteReplyError("nothing was said")
        return body.upper() + b"!"

    def event(self, data: bytes) -> bytes:
        return self.whole(data)

    def refusal(self, body: bytes) -> bytes:
        return body.replace(b"theirs", b"mine")


async def returned(
    headers: list[tuple[bytes, bytes]], bodies: Iterable[bytes], status: int = 200
) -> tuple[dict[str, Any], list[bytes]]:
    """Send a reply through and return its head and what came of its body, piece by piece."""
    came: list[Any] = []

    async def send(message: Any) -> None:
        came.append(message)

    back = RewritingSend(send, Louder())
    await back({"type": "http.response.start", "status": status, "headers": headers})
    *pieces, last = bodies
    for piece in pieces:
        await back({"type": "http.response.body", "body": piece, "more_body": True})
    await back({"type": "http.response.body", "body": last})
    head, *rest = came
    assert [one.get("more_body", False) for one in rest] == [True] * (len(rest) - 1) + [False]
    return head, [one["body"] for one in rest]


async def test_a_complete_reply_is_translated_at_once_and_has_its_length() -> None:
    head, bodies = await returned([(b"content-length", b"3")], [b"a", b"", b"bc"])

    assert bodies == [b"ABC!"]
    assert head["headers"] == [(b"content-length", b"4")]


async def test_a_reply_that_lacks_what_was_asked_for_is_an_error() -> None:
    head, (body,) = await returned([(b"content-length", b"7")], [b"silence"])

    assert (head["status"], head["headers"]) == (500, [(b"content-length", b"%d" % len(body))])
    assert json.loads(body)["error"]["message"] == "nothing was said"


async def test_an_error_names_the_client_s_own_field() -> None:
    head, bodies = await returned([(b"content-length", b"6")], [b"theirs"], status=400)

    assert (head["status"], bodies) == (400, [b"mine"])


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 21, 100])
async def test_a_stream_is_turned_event_by_event_wherever_it_is_cut(size: int) -> None:
    stream = b'data: {"a":1}\n\ndata: b\n\n: a comment\n\ndata: [DONE]\n\n'
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]

    head, bodies = await returned(STREAM, pieces)

    assert head["headers"] == STREAM
    assert b"".join(bodies) == b'data: {"A":1}!\n\ndata: B!\n\n: a comment\n\ndata: [DONE]\n\n'


async def test_an_event_goes_out_when_it_is_whole_and_not_later() -> None:
    _, bodies = await returned(STREAM, [b"data: a\n\n", b"data: b", b"\n\n", b""])

    assert bodies == [b"data: A!\n\n", b"data: B!\n\n", b""]


async def test_after_an_event_that_cannot_be_turned_comes_the_end_alone() -> None:
    pieces = [b"data: a\n\n", b"data: silence\n\n", b"data: b\n\n", b"data: [DONE]\n\n", b""]

    _, bodies = await returned(STREAM, pieces)

    first, error, end, rest = bodies
    assert (first, end, rest) == (b"data: A!\n\n", b"data: [DONE]\n\n", b"")
    assert json.loads(error.removeprefix(b"data: "))["error"]["code"] == 500


# --- below the gate -------------------------------------------------------------------------------


class Engine:
    """An application that echoes what reached it, under an extension with a shape of the test's."""

    def __init__(self, file: Path) -> None:
        self.gate = Gate(file, "boot-1")
        self.gate.hold("step-1")
        self.gate.open()
        self.came: list[tuple[str, bytes, dict[bytes, bytes]]] = []
        self.extension = Extension(self.answer, self.gate, turns={PATH: turn})

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = (await receive())["body"]
        self.came.append((scope["path"], body, dict(scope["headers"])))
        assert int(dict(scope["headers"])[b"content-length"]) == len(body)
        # A question is asked in the passage of the request that it belongs to.
        assert self.gate.in_flight == 1
        if body == b'{"closes":true}':
            self.gate.close()
        status = 422 if b"refused" in body else 200
        reply = compact({"heard": body.decode()})
        headers = [(b"content-length", b"%d" % len(reply))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": reply})

    async def post(self, content: object) -> httpx.Response:
        transport = httpx.ASGITransport(self.extension, client=("10.0.0.9", 4000))
        headers = {"authorization": "Bearer key"}
        async with httpx.AsyncClient(transport=transport, base_url="http://e") as client:
            return await client.post(PATH, json=content, headers=headers)


async def turn(body: bytes, ask: InnerCall) -> RequestRewrite | None:
    """Refuse, ask and turn, by what the body says."""
    content = json.loads(body)
    if "bad" in content:
        raise FieldError("bad", "is bad")
    if "asks" not in content:
        return None
    heard = await ask("/v1/other", content["asks"])
    return RequestRewrite("/v1/inner", compact(heard | {"cache_salt": "a"}), Louder())


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path / "gate")


async def test_a_body_that_needs_nothing_reaches_vllm_as_it_came(engine: Engine) -> None:
    reply = await engine.post({"a": 1})

    assert [(path, body) for path, body, _ in engine.came] == [(PATH, b'{"a":1}')]
    assert json.loads(reply.content) == {"heard": '{"a":1}'}


async def test_vllm_is_asked_with_the_client_s_key_and_its_answer_is_turned(
    engine: Engine,
) -> None:
    reply = await engine.post({"asks": {"x": 1}})

    (one, asked, headers), (two, body, _) = engine.came
    assert (one, asked, headers[b"authorization"]) == ("/v1/other", b'{"x":1}', b"Bearer key")
    assert (two, json.loads(body)["heard"]) == ("/v1/inner", '{"x":1}')
    assert json.loads(body)["cache_salt"] not in {"a", None}
    assert reply.content.startswith(b'{"HEARD"')
    assert (
        reply.headers[paths.VERSION_HEADER] == reply.headers[paths.END_VERSION_HEADER] == "step-1"
    )
    assert int(reply.headers["content-length"]) == len(reply.content)


async def test_what_vllm_refuses_on_the_way_is_the_answer(engine: Engine) -> None:
    reply = await engine.post({"asks": {"refused": 1}})

    assert (reply.status_code, len(engine.came)) == (422, 1)
    assert json.loads(reply.content) == {"heard": '{"refused":1}'}
    assert reply.headers[paths.VERSION_HEADER] == "step-1"


async def test_a_field_that_cannot_be_taken_is_named_and_vllm_never_asked(engine: Engine) -> None:
    reply = await engine.post({"bad": 1})

    assert (reply.status_code, engine.came) == (400, [])
    assert reply.json()["error"]["param"] == "bad"
    assert reply.headers[paths.VERSION_HEADER] == "step-1"


async def test_a_gate_that_closes_while_vllm_is_asked_holds_the_request_and_no_question(
    engine: Engine,
) -> None:
    request = asyncio.create_task(engine.post({"asks": {"closes": True}}))
    done, _ = await asyncio.wait([request], timeout=0.1)
    assert not done
    assert [path for path, _, _ in engine.came] == ["/v1/other"]
    assert (engine.gate.waiting, engine.gate.in_flight) == (1, 0)

    engine.gate.hold("step-2")
    engine.gate.open()

    assert (await request).headers[paths.VERSION_HEADER] == "step-2"
    assert [path for path, _, _ in engine.came] == ["/v1/other", "/v1/inner"]
