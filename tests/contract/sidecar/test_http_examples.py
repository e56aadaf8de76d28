"""What docs/reference/http.md shows of sidecar and engine is what they answer, first to last."""

import json
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

from dev.docs import engine_examples
from dev.docs.http_example import Example, agrees
from dev.docs.http_examples import EXAMPLES, PIECES, POD_UID
from rlfleet_contract import paths
from rlfleet_engine.gate.network_guard import ALWAYS, GATED, Route, route_of
from rlfleet_engine.rewrite.shapes.chat import TOKENS_PATH
from rlfleet_sidecar.app import OPEN, ROUTERS
from rlfleet_sidecar.dialects.routes import dynamo
from rlfleet_sidecar.http import pieces
from tests.contract.subject import Subject


def placed(value: Any, weights: str) -> Any:
    """Put the worker's own directory where the examples say /weights."""
    if isinstance(value, str):
        return value.replace("/weights/", f"{weights}/")
    if isinstance(value, list):
        return [placed(inner, weights) for inner in value]
    if isinstance(value, dict):
        return {key: placed(inner, weights) for key, inner in value.items()}
    return value


@pytest.fixture
def identity() -> dict[str, str]:
    return {"pod_uid": POD_UID}


def addressed(answer: dict[str, Any], subject: Subject) -> Any:
    """Put the worker's own addresses where the examples name one of a fleet."""
    text = json.dumps(answer)
    for port, client in ((8000, subject.engine), (8090, subject.admin)):
        own = f"{client.base_url.host}:{client.base_url.port}"
        text = text.replace(f"qwen-0.qwen-workers.NAMESPACE.svc:{port}", own)
    return json.loads(text)


async def replied(subject: Subject, method: str, path: str, body: Any) -> httpx.Response:
    """Return the reply; of a watch, which has no end, its first line."""
    if path != paths.WATCH_PATH:
        return await subject.admin.request(method, path, json=body)
    async with subject.admin.stream(method, path) as stream:
        line = json.loads(await anext(stream.aiter_lines()))
        return httpx.Response(stream.status_code, json=line)


async def test_each_example_is_answered_as_it_is_shown(subject: Subject) -> None:
    for example in EXAMPLES + PIECES:
        method, _, path = example.request.partition(" ")
        sent = placed(example.body, subject.weights)
        reply = await replied(subject, method, path, sent)
        shown = example
        if isinstance(example.answer, dict):
            shown = example._replace(answer=addressed(example.answer, subject))
        assert agrees(shown, reply.status_code, reply.text, content_of(reply)), text_of(reply)


async def test_an_engine_answers_as_it_is_shown(subject: Subject) -> None:
    """On real vLLM too: its clients' requests, and the relevant part of the replies."""
    await subject.serve(subject.versions.first)

    for example in engine_examples.EXAMPLES:
        method, _, path = example.request.partition(" ")
        reply = await subject.engine.request(method, path, json=named(example.body, subject))
        shown = example._replace(answer=named(example.answer, subject))
        assert agrees(shown, reply.status_code, reply.text, content_of(reply)), text_of(reply)


def named(value: Any, subject: Subject) -> Any:
    """Put the engine's own name for its model where the examples say qwen."""
    is_named = isinstance(value, dict) and value.get("model") == "qwen"
    return value | {"model": subject.model_name} if is_named else value


def content_of(reply: httpx.Response) -> Any:
    is_json = reply.headers.get("content-type", "").startswith("application/json")
    return reply.json() if is_json else None


def text_of(reply: httpx.Response) -> str:
    return f"{reply.request.method} {reply.request.url}: {reply.status_code} {reply.text}"


def test_each_data_route_has_an_example() -> None:
    shown = {example.request.split()[1] for example in engine_examples.EXAMPLES}

    assert {route_of(path.encode()) for path in shown} == set(Route) - {Route.CONTROL}
    assert ALWAYS | GATED | {paths.LIVENESS_PATH, TOKENS_PATH} <= shown


def test_each_route_has_an_example_and_each_example_a_route() -> None:
    routes = {
        f"{method} {route.path}"
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods
    }
    routes -= {"POST /engine/{name:path}"}
    routes |= {f"POST /engine/{name}" for name in dynamo.ROUTES} | {f"GET {path}" for path in OPEN}

    assert {_route_of(example) for example in EXAMPLES + PIECES} == routes


def _route_of(example: Example) -> str:
    """Return an example's route, with the names of what a path has of the request."""
    method, _, path = example.route.partition(" ")
    named = (route for route in pieces.router.routes if isinstance(route, APIRoute))
    found = next((route.path for route in named if route.path_regex.match(path)), path)
    return f"{method} {found}"
