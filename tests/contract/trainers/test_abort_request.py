"""One request that a trainer ends by its id, as Dynamo's clients do, and no other with it."""

import asyncio
from typing import Any
from uuid import uuid4

import httpx
import pytest

from rlfleet_contract import paths
from tests.contract.subject import Subject

LONG: dict[str, Any] = {"max_tokens": 900, "min_tokens": 900, "ignore_eos": True}
SAMPLING = {"token_ids": [11, 12, 13], "sampling_params": LONG | {"temperature": 0}}
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/completions": LONG | {"prompt": [11, 12, 13]},
    "/v1/chat/completions": LONG | {"messages": [{"role": "user", "content": "one two"}]},
    "/inference/v1/generate": SAMPLING,
}


def begun(subject: Subject, route: str, name: str) -> "asyncio.Task[httpx.Response]":
    body = {"model": subject.model_name} | ROUTES[route]
    return asyncio.create_task(
        subject.engine.post(route, json=body, headers={"x-request-id": name})
    )


async def aborted(
    subject: Subject, request: "asyncio.Task[httpx.Response]", name: str
) -> dict[str, Any]:
    """Ask for its end until it has come: it may not have reached the engine at first."""
    while not request.done():
        reply = await subject.admin.post("/engine/abort_request", json={"request_id": name})
        assert reply.status_code == 200, reply.text
        assert reply.json() == {"status": "ok", "request_id": name}
        await asyncio.sleep(0.02)
    found = request.result()
    assert found.status_code == 200, found.text
    choice: dict[str, Any] = found.json()["choices"][0]
    return choice


@pytest.mark.parametrize("route", ROUTES)
async def test_a_request_ends_by_its_client_s_id_and_the_others_continue(
    subject: Subject, route: str
) -> None:
    await subject.serve(subject.versions.first)
    name, other = uuid4().hex, uuid4().hex
    going_on = begun(subject, route, other)
    request = begun(subject, route, name)

    assert (await aborted(subject, request, name))["finish_reason"] == "abort"

    assert (await going_on).json()["choices"][0]["finish_reason"] == "length"


async def test_one_that_a_pause_froze_ends_at_once(subject: Subject) -> None:
    await subject.serve(subject.versions.first)
    name = uuid4().hex
    request = begun(subject, "/v1/completions", name)
    await asyncio.sleep(0.1)
    await subject.ok(paths.PAUSE_PATH, subject.versions.first)

    assert (await aborted(subject, request, name))["finish_reason"] == "abort"

    await subject.ok(paths.RESUME_PATH, subject.versions.first)


async def test_an_unknown_id_ends_no_request(subject: Subject) -> None:
    await subject.serve(subject.versions.first)
    request = begun(subject, "/v1/completions", uuid4().hex)

    while not request.done():
        await subject.admin.post("/engine/abort_request", json={"request_id": uuid4().hex})
        await asyncio.sleep(0.05)

    assert request.result().json()["choices"][0]["finish_reason"] == "length"
