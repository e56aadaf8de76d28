"""What stands in a reply's head, and what is sent in a reply's place."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from rlfleet_contract import paths
from rlfleet_engine.asgi import resized
from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.middleware import Extension

LONG = "x" * 70_000
OVERFLOW = "longer than the maximum model length of 8"


class Engine:
    """Answers in vLLM's ways, and changes its version where the test sets that."""

    def __init__(self, file: Path) -> None:
        self.gate = Gate(file, "boot-1")
        self.gate.hold("step-1")
        self.gate.open()
        self.seen: list[Request] = []
        self.bodies: list[bytes] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.app = app = FastAPI()
        app.add_api_route("/v1/{path}", self.answer, methods=["GET", "POST"])
        app.add_api_route("/tokenize", self.answer, methods=["POST"])
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(Extension(app, self.gate)), base_url="http://127.0.0.1"
        )

    async def answer(self, request: Request, path: str = "") -> Response:
        self.seen.append(request)
        self.bodies.append(await request.body())
        self.meanwhile()
        match path:
            case "stream":
                return StreamingResponse(iter(["data: 1\n\n", "data: [DONE]\n\n"]))
            case "overflow":
                return JSONResponse({"error": {"message": OVERFLOW}}, 400)
            case "long":
                return JSONResponse({"error": {"message": OVERFLOW + LONG}}, 400)
            case "dead":
                return JSONResponse({"error": {"message": "EngineCore encountered an issue"}}, 500)
            case "failing":
                return JSONResponse({"error": {"message": "no"}}, 503)
            case _:
                return JSONResponse({"text": "one"})

    def there_and_back(self) -> None:
        self.gate.hold("step-2")
        self.gate.hold("step-1")


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path / "gate")


def versions(reply: httpx.Response) -> tuple[str | None, str | None]:
    headers = reply.headers
    return headers.get(paths.VERSION_HEADER), headers.get(paths.END_VERSION_HEADER)


async def test_both_versions_are_in_headers_and_may_differ(engine: Engine) -> None:
    assert versions(await engine.client.post("/v1/completions")) == ("step-1", "step-1")
    assert versions(await engine.client.post("/tokenize")) == ("step-1", "step-1")
    engine.meanwhile = lambda: engine.gate.hold("step-2")

    reply = await engine.client.post("/v1/completions")

    assert versions(reply) == ("step-1", "step-2")
    assert reply.json() == {"text": "one"}


async def test_a_stream_has_its_first_version_and_passes_byte_for_byte(engine: Engine) -> None:
    engine.meanwhile = lambda: engine.gate.hold("step-2")
    headers = {paths.EXACT_VERSION_HEADER: "step-1"}

    reply = await engine.client.post("/v1/stream", headers=headers)

    assert versions(reply) == ("step-1", None)
    assert (reply.status_code, reply.text) == (200, "data: 1\n\ndata: [DONE]\n\n")


async def test_without_a_named_version_there_is_no_header(tmp_path: Path) -> None:
    engine = Engine(tmp_path / "other")
    engine.gate = Gate(tmp_path / "other", "boot-2")
    engine.gate.open()
    client = httpx.AsyncClient(
        transport=httpx.ASGITransport(Extension(FastAPI(), engine.gate)),
        base_url="http://127.0.0.1",
    )

    assert versions(await client.post("/v1/completions")) == (None, None)
    refused = await client.post("/v1/completions", headers={paths.MIN_VERSION_HEADER: "base"})
    assert refused.status_code == 404
    refused = await client.post("/v1/completions", headers={paths.MIN_VERSION_HEADER: "step-1"})
    assert (refused.status_code, refused.json()["version"]) == (409, None)


async def test_a_failure_of_an_engine_that_ends_is_an_answer_to_repeat_elsewhere(
    engine: Engine,
) -> None:
    before = await engine.client.post("/v1/dead")
    engine.gate.drain()
    reply = await engine.client.post("/v1/dead")
    served = await engine.client.post("/v1/completions")

    assert (before.status_code, served.status_code) == (500, 200)
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
    assert "worker is ending" in reply.json()["error"]["message"]


async def test_a_stream_reports_its_last_version_on_request(engine: Engine) -> None:
    engine.meanwhile = lambda: engine.gate.hold("step-2")
    headers = {paths.END_VERSION_HEADER: "event"}

    reply = await engine.client.post("/v1/stream", headers=headers)
    whole = await engine.client.post("/v1/completions", headers=headers)

    told, *rest = reply.text.removeprefix("data: 1\n\ndata: ").split("\n\n")
    assert rest == ["data: [DONE]", ""]
    assert json.loads(told) == {
        "object": "rlfleet.version",
        "choices": [],
        "version": "step-1",
        "version_end": "step-2",
        "changes": 1,
    }
    assert versions(reply) == ("step-1", None)
    assert whole.json() == {"text": "one"}


async def test_from_there_and_back_is_two_changes(engine: Engine) -> None:
    engine.meanwhile = engine.there_and_back

    reply = await engine.client.post("/v1/stream", headers={paths.END_VERSION_HEADER: "event"})

    told = json.loads(reply.text.split("\n\n")[1].removeprefix("data: "))
    assert (told["version"], told["version_end"], told["changes"]) == ("step-1", "step-1", 2)


async def test_ungated_routes_report_the_proved_version(engine: Engine) -> None:
    async def found() -> tuple[str | None, str | None]:
        return versions(await engine.client.get("/v1/models"))

    assert await found() == ("step-1", None)
    engine.gate.close()
    assert await found() == ("step-1", None)
    engine.gate.begin_trial("step-2")
    assert await found() == (None, None)
    engine.gate.end_trial(is_proved=False)
    assert await found() == (None, None)
    engine.gate.begin_trial("step-3")
    engine.gate.end_trial(is_proved=True)
    assert await found() == ("step-3", None)


async def test_an_unmet_request_does_not_reach_the_engine(engine: Engine) -> None:
    reply = await engine.client.post(
        "/v1/completions", headers={paths.MIN_VERSION_HEADER: "step-2"}
    )

    assert (reply.status_code, reply.headers["retry-after"]) == (409, "1")
    assert reply.headers["content-length"] == str(len(reply.content))
    assert b": " not in reply.content.replace(b"requested: ", b"")
    assert versions(reply) == ("step-1", None)
    assert (reply.json()["version"], reply.json()["minimum"]) == ("step-1", "step-2")
    assert engine.seen == []
    assert engine.gate.totals() == (0, 0)


@pytest.mark.parametrize("value", ["", "a b"])
async def test_a_malformed_header_is_refused_by_its_name(engine: Engine, value: str) -> None:
    reply = await engine.client.post("/v1/completions", headers={paths.EXACT_VERSION_HEADER: value})

    assert (reply.status_code, reply.json()["error"]["param"]) == (400, paths.EXACT_VERSION_HEADER)
    assert engine.seen == []


async def test_exact_means_all_the_time(engine: Engine) -> None:
    engine.meanwhile = engine.there_and_back
    exact, minimum = paths.EXACT_VERSION_HEADER, paths.MIN_VERSION_HEADER

    replies = [
        await engine.client.post("/v1/completions", headers={header: "step-1"})
        for header in (exact, minimum)
    ]

    assert [reply.status_code for reply in replies] == [409, 200]
    assert "text" not in replies[0].json()


async def test_an_answer_below_the_minimum_at_its_end_is_withheld(engine: Engine) -> None:
    engine.gate.hold("step-2")
    engine.meanwhile = lambda: engine.gate.hold("step-1")

    reply = await engine.client.post(
        "/v1/completions", headers={paths.MIN_VERSION_HEADER: "step-2"}
    )

    assert (reply.status_code, reply.json()["version"]) == (409, "step-1")


@pytest.mark.parametrize(("path", "status"), [("overflow", 400), ("failing", 503)])
async def test_an_error_is_not_withheld(engine: Engine, path: str, status: int) -> None:
    engine.meanwhile = lambda: engine.gate.hold("step-2")

    reply = await engine.client.post(f"/v1/{path}", headers={paths.EXACT_VERSION_HEADER: "step-1"})

    assert (reply.status_code, versions(reply)) == (status, ("step-1", "step-2"))


async def test_an_overflow_gets_its_words_and_a_right_length(engine: Engine) -> None:
    reply = await engine.client.post("/v1/overflow")

    assert "context length" in reply.json()["error"]["message"]
    assert reply.headers["content-length"] == str(len(reply.content))


async def test_an_error_that_is_too_long_to_buffer_passes(engine: Engine) -> None:
    reply = await engine.client.post("/v1/long")

    assert reply.json()["error"]["message"] == OVERFLOW + LONG


async def test_a_salted_body_has_a_right_length_and_an_unsalted_one_its_bytes(
    engine: Engine,
) -> None:
    plain = b'{ "prompt" : "one" }'
    headers = {"content-type": "application/json"}

    await engine.client.post("/v1/completions", content=plain, headers=headers)
    await engine.client.post("/v1/completions", json={"cache_salt": "a"})

    before, after = engine.bodies
    assert before == plain
    assert len(json.loads(after)["cache_salt"]) == 64
    assert engine.seen[1].headers["content-length"] == str(len(after))


async def test_a_salt_in_a_body_that_comes_in_pieces_is_found(engine: Engine) -> None:
    async def pieces() -> Any:
        for piece in (b'{"cache_', b'salt":', b'"a"}'):
            yield piece

    headers = {"content-type": "application/json"}
    await engine.client.post("/v1/completions", json={"cache_salt": "a"})
    await engine.client.post("/v1/completions", content=pieces(), headers=headers)

    assert json.loads(engine.bodies[0]) == json.loads(engine.bodies[1])


async def test_a_gate_that_is_closed_while_a_body_comes_holds_its_request(engine: Engine) -> None:
    may_end = asyncio.Event()

    async def pieces() -> Any:
        yield b'{"cache_salt":'
        await may_end.wait()
        yield b'"a"}'

    headers = {"content-type": "application/json"}
    request = asyncio.create_task(
        engine.client.post("/v1/completions", content=pieces(), headers=headers)
    )
    await asyncio.sleep(0.02)
    assert engine.gate.totals() == (0, 1)
    engine.gate.close()
    may_end.set()
    await asyncio.sleep(0.02)
    assert (engine.gate.totals(), engine.seen) == ((1, 0), [])
    engine.gate.hold("step-2")
    engine.gate.open()

    assert versions(await request) == ("step-2", "step-2")
    await engine.client.post("/v1/completions", json={"cache_salt": "a"})
    assert json.loads(engine.bodies[0]) == json.loads(engine.bodies[1])
    assert engine.gate.totals() == (0, 0)


async def test_a_body_beyond_all_bounds_is_refused(engine: Engine) -> None:
    extension = Extension(engine.app, engine.gate, max_body_bytes=len(b'{"cache_salt":""}'))
    client = httpx.AsyncClient(
        transport=httpx.ASGITransport(extension), base_url="http://127.0.0.1"
    )

    replies = [
        await client.post("/v1/completions", json={"cache_salt": "a" * size}) for size in (0, 1)
    ]

    assert [reply.status_code for reply in replies] == [200, 413]
    assert len(engine.seen) == 1
    assert engine.gate.totals() == (0, 0)


def test_only_the_length_is_corrected() -> None:
    rest = [(b"host", b"x"), (b"x-length", b"7"), (b"transfer-encoding", b"chunked")]

    made = resized([(b"content-length", b"7"), *rest], 12)

    assert made == [(b"content-length", b"12"), *rest]
    assert resized(rest, 3) == rest
