"""What docs/reference/http.md shows is what a worker answers, from its first call to the last."""

from typing import Any

from fastapi.routing import APIRoute

from dev.http_examples import EXAMPLES
from rlfleet_sidecar.app import OPEN, ROUTERS
from rlfleet_sidecar.dialects import dynamo
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


async def test_each_example_is_answered_as_it_is_shown(subject: Subject) -> None:
    for example in EXAMPLES:
        method, _, path = example.request.partition(" ")
        reply = await subject.admin.request(
            method, path, json=placed(example.body, subject.weights)
        )
        told = f"{example.request}: {reply.status_code} {reply.text}"
        assert reply.status_code == example.status, told
        if isinstance(example.answer, str):
            assert example.answer in reply.text, told
        elif example.has_more:
            assert reply.json() | example.answer == reply.json(), told
        else:
            assert reply.json() == example.answer, told


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

    assert {example.request.partition("?")[0] for example in EXAMPLES} == routes
