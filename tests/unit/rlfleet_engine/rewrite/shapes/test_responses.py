"""/v1/responses: what is computed outside of its own request is refused."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.middleware import Extension


class Engine:
    """Records which requests reached vLLM."""

    def __init__(self, file: Path) -> None:
        self.gate = Gate(file, "boot-1")
        self.gate.hold("step-1")
        self.gate.open()
        self.reached: list[str] = []
        self.app = FastAPI()
        self.app.add_api_route("/v1/{path:path}", self.answer, methods=["GET", "POST"])

    async def answer(self, path: str) -> dict[str, Any]:
        self.reached.append(path)
        return {"id": "resp_1", "status": "completed"}


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path / "gate")


@pytest.fixture
async def client(engine: Engine) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(Extension(engine.app, engine.gate), client=("10.0.0.9", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as made:
        yield made


@pytest.mark.parametrize("value", [True, "true", "yes", 1, "on", [], {}])
async def test_a_response_in_the_background_is_refused_with_the_way_out(
    engine: Engine, client: httpx.AsyncClient, value: object
) -> None:
    reply = await client.post("/v1/responses", json={"input": "x", "background": value})

    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, "background")
    assert "stream" in error["message"]
    assert engine.reached == []


@pytest.mark.parametrize("fields", [{}, {"background": False}, {"background": None}])
async def test_a_response_within_its_request_passes(
    engine: Engine, client: httpx.AsyncClient, fields: dict[str, Any]
) -> None:
    asked = {"input": "x", "previous_response_id": "resp_0"}

    assert (await client.post("/v1/responses", json=asked | fields)).status_code == 200
    assert engine.reached == ["responses"]


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "resp_1"), ("GET", "resp_1?stream=true"), ("POST", "resp_1/cancel"), ("GET", "x/y")],
)
async def test_no_stored_response_goes_out(
    engine: Engine, client: httpx.AsyncClient, method: str, path: str
) -> None:
    reply = await client.request(method, f"/v1/responses/{path}")

    assert reply.status_code == 400
    assert "stored responses are not returned" in reply.json()["error"]["message"]
    assert engine.reached == []


async def test_a_response_is_rendered(engine: Engine, client: httpx.AsyncClient) -> None:
    assert (await client.post("/v1/responses/render", json={})).status_code == 200
    assert engine.reached == ["responses/render"]
