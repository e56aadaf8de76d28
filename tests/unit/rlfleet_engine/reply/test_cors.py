"""A page in a browser reads the extension's own answers as it reads vLLM's."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from rlfleet_contract import paths
from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.middleware import Extension

ORIGIN = {"origin": "http://ui"}
PREFLIGHT = {**ORIGIN, "access-control-request-method": "POST"}


async def nothing() -> dict[str, str]:
    return {}


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    made = Gate(tmp_path / "gate", "boot-1")
    made.hold("step-1")
    made.open()
    return made


@pytest.fixture
async def page(gate: Gate) -> AsyncIterator[httpx.AsyncClient]:
    app = FastAPI()
    app.add_middleware(
        CORSMiddleware,
        allow_origins=["http://ui"],
        allow_methods=["*"],
        allow_headers=["*"],
        allow_credentials=True,
    )
    app.add_api_route("/v1/completions", nothing, methods=["POST"])
    app.add_api_route("/version", nothing)
    extension = Extension(app, gate, max_body_bytes=100)
    transport = httpx.ASGITransport(extension, client=("10.0.0.9", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
        yield client


def cors_of(reply: httpx.Response) -> dict[str, str]:
    return {
        name: one
        for name, one in reply.headers.items()
        if name.startswith("access-control-") or name == "vary"
    }


@pytest.mark.parametrize("origin", ["http://ui", "http://elsewhere"])
async def test_the_extension_s_own_answers_have_the_cors_headers_of_vllm_s(
    gate: Gate, page: httpx.AsyncClient, origin: str
) -> None:
    head = {"origin": origin}
    path = "/v1/completions"
    theirs = cors_of(await page.post(path, headers=head, json={}))
    assert ("access-control-allow-origin" in theirs) is (origin == "http://ui")

    exact = {**head, paths.EXACT_VERSION_HEADER: "step-9"}
    answers = [
        await page.post(path, headers=exact, json={}),
        await page.post(path, headers={**exact, paths.EXACT_VERSION_HEADER: "../x"}, json={}),
        await page.post(path, headers=head, json={"prompt": "x" * 200}),
        await page.get("/pause", headers=head),
    ]
    gate.refuse()
    answers.append(await page.post(path, headers=head, json={}))

    assert [reply.status_code for reply in answers] == [409, 400, 413, 404, 503]
    assert [cors_of(reply) for reply in answers] == [theirs] * 5


async def test_an_answer_of_vllm_s_own_has_its_headers_once(gate: Gate) -> None:
    """Of another origin's request, newer Starlettes say only what the reply varies by."""
    app = FastAPI()
    app.add_middleware(CORSMiddleware, allow_origins=["http://ui"])
    app.add_api_route("/version", nothing)
    transport = httpx.ASGITransport(Extension(app, gate, max_body_bytes=100))
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
        reply = await client.get("/version", headers={"origin": "http://elsewhere"})

    names = [name for name, _ in reply.headers.raw]
    assert reply.status_code == 200
    assert len(names) == len(set(names))


async def test_without_an_origin_there_are_none(page: httpx.AsyncClient) -> None:
    assert cors_of(await page.get("/pause")) == {}


async def test_a_preflight_does_not_wait_at_the_gate(gate: Gate, page: httpx.AsyncClient) -> None:
    for move in (gate.open, gate.close, gate.refuse):
        move()
        async with asyncio.timeout(5):
            reply = await page.options("/v1/completions", headers=PREFLIGHT)

        assert reply.status_code == 200
        assert reply.headers["access-control-allow-origin"] == "http://ui"


async def test_a_preflight_reaches_no_control_route(page: httpx.AsyncClient) -> None:
    assert (await page.options("/pause", headers=PREFLIGHT)).status_code == 404
