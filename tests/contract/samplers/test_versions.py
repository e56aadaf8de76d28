"""Versions in replies and in requests, and errors that say why."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from openai import AsyncOpenAI

from rlfleet_contract import paths
from tests.contract.samplers.test_traffic import until_in_flight
from tests.contract.subject import Subject

FULL = [11] * 1024
"""As long as the context of the engines that run this: nothing can be made."""
TOO_LONG = [11] * 1100
MESSAGES: Any = [{"role": "user", "content": "one two"}]


@pytest.fixture
async def first(subject: Subject) -> str:
    """The version that the worker serves."""
    await subject.serve(subject.versions.first)
    return subject.versions.first


# --- the version of a reply -----------------------------------------------------------------------


async def test_a_reply_names_its_version_at_its_start_and_at_its_end(subject: Subject) -> None:
    for version in (subject.versions.first, subject.versions.second, paths.BASE_VERSION):
        await subject.serve(version)

        reply = await subject.complete(max_tokens=2)

        assert reply.headers[paths.VERSION_HEADER] == version
        assert reply.headers[paths.END_VERSION_HEADER] == version
        assert int(reply.headers["content-length"]) == len(reply.content)


@pytest.mark.parametrize("path", ["/v1/models", "/health", "/liveness", "/metrics", "/version"])
async def test_routes_that_never_wait_name_the_version_too(subject: Subject, path: str) -> None:
    for version in (subject.versions.first, subject.versions.second):
        await subject.serve(version)
        await subject.ok(paths.PAUSE_PATH, version, operation=f"look-{version}")

        paused = await subject.engine.get(path)

        await subject.ok(paths.RESUME_PATH, version, operation=f"look-{version}")
        opened = await subject.engine.get(path)
        for reply in (paused, opened):
            assert (reply.status_code, reply.headers[paths.VERSION_HEADER]) == (200, version)
            assert paths.END_VERSION_HEADER not in reply.headers


async def test_an_error_names_its_version_too(subject: Subject, first: str) -> None:
    reply = await subject.complete(max_tokens="many")

    assert (reply.status_code, reply.headers[paths.VERSION_HEADER]) == (400, first)


async def test_a_streamed_reply_names_its_version_at_its_start_alone(
    subject: Subject, first: str
) -> None:
    reply = await subject.complete(max_tokens=4, stream=True)

    assert reply.headers[paths.VERSION_HEADER] == first
    assert paths.END_VERSION_HEADER not in reply.headers
    assert reply.text.rstrip().endswith("data: [DONE]")


@asynccontextmanager
async def streamed(subject: Subject, path: str, tokens: int) -> AsyncIterator[Any]:
    """Open a stream by OpenAI's client, and request its end version."""
    words: dict[str, Any] = {"model": subject.model_name, "max_tokens": tokens, "stream": True}
    words["extra_headers"] = {paths.END_VERSION_HEADER: "event"}
    words["extra_body"] = {"ignore_eos": True}
    url = str(subject.engine.base_url).rstrip("/")
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield await (
            client.completions.create(prompt=FULL[:20], **words)
            if path == "/v1/completions"
            else client.chat.completions.create(messages=MESSAGES, **words)
        )


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_a_stream_names_its_end_version_in_an_event_on_request(
    subject: Subject, first: str, path: str
) -> None:
    async with streamed(subject, path, tokens=4) as stream:
        *_, ended, last = [chunk async for chunk in stream]

    assert ended.choices[0].finish_reason == "length"
    assert (last.object, last.choices) == ("rlfleet.version", [])
    assert last.model_extra == {"version": first, "version_end": first, "changes": 0}


async def test_a_stream_that_was_frozen_names_both_versions(subject: Subject, first: str) -> None:
    second = subject.versions.second
    await subject.ok(paths.PREPARE_PATH, second)
    async with streamed(subject, "/v1/completions", tokens=900) as stream:
        await anext(stream)
        await subject.ok(paths.UPDATE_WEIGHTS_PATH, second)
        *_, last = [chunk async for chunk in stream]

    assert last.model_extra == {"version": first, "version_end": second, "changes": 1}


async def test_a_reply_that_was_frozen_names_both_versions_in_its_headers(
    subject: Subject, first: str
) -> None:
    request = asyncio.create_task(subject.complete(max_tokens=900, ignore_eos=True))
    await until_in_flight(subject, is_any=True)

    await subject.serve(subject.versions.second)

    reply = await request
    assert reply.headers[paths.VERSION_HEADER] == first
    assert reply.headers[paths.END_VERSION_HEADER] == subject.versions.second


async def test_a_reply_that_ends_behind_the_closed_gate_names_the_cause(
    subject: Subject, first: str
) -> None:
    second = subject.versions.second
    await subject.ok(paths.PREPARE_PATH, second)
    request = asyncio.create_task(subject.complete(max_tokens=900, ignore_eos=True))
    await until_in_flight(subject, is_any=True)

    await subject.ok(paths.UPDATE_WEIGHTS_PATH, second, through="Verify")

    reply = await request
    assert reply.headers[paths.VERSION_HEADER] == first
    assert reply.headers[paths.END_VERSION_HEADER] == second
    await subject.ok(paths.RESUME_PATH, second)


# --- asking for a version -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        (paths.EXACT_VERSION_HEADER, "step-1"),
        (paths.MIN_VERSION_HEADER, "step-1"),
        (paths.MIN_VERSION_HEADER, "step-0"),
        (paths.MIN_VERSION_HEADER, paths.BASE_VERSION),
    ],
)
async def test_a_request_for_the_served_version_is_answered(
    subject: Subject, first: str, header: str, wanted: str
) -> None:
    assert first == "step-1"

    reply = await subject.complete(headers={header: wanted}, max_tokens=2)

    assert (reply.status_code, reply.headers[paths.VERSION_HEADER]) == (200, first)


@pytest.mark.parametrize(
    ("header", "field"),
    [(paths.EXACT_VERSION_HEADER, "exact"), (paths.MIN_VERSION_HEADER, "minimum")],
)
async def test_a_request_for_another_version_gets_a_retryable_error(
    subject: Subject, first: str, header: str, field: str
) -> None:
    reply = await subject.complete(headers={header: "step-2"}, max_tokens=2)

    told = reply.json()
    assert (reply.status_code, told["version"], told[field]) == (409, first, "step-2")
    assert told["error"]["param"] == header
    assert int(reply.headers["retry-after"]) > 0
    await subject.serve("step-2")
    assert (await subject.complete(headers={header: "step-2"}, max_tokens=2)).status_code == 200


async def test_a_minimum_without_an_order_is_a_fault_of_the_request(
    subject: Subject, first: str
) -> None:
    reply = await subject.complete(headers={paths.MIN_VERSION_HEADER: "run-7-step-1"}, max_tokens=2)

    assert (reply.status_code, reply.json()["version"]) == (400, first)
    assert "no order" in reply.json()["error"]["message"]


async def test_a_request_at_the_gate_is_judged_when_it_passes(subject: Subject, first: str) -> None:
    second = subject.versions.second
    await subject.ok(paths.PREPARE_PATH, second)
    await subject.ok(paths.PAUSE_PATH, second)
    new, old = (
        asyncio.create_task(subject.complete(headers={header: wanted}, max_tokens=2))
        for header, wanted in (
            (paths.MIN_VERSION_HEADER, second),
            (paths.EXACT_VERSION_HEADER, first),
        )
    )
    done, _ = await asyncio.wait([new, old], timeout=0.2)
    assert not done

    await subject.ok(paths.UPDATE_WEIGHTS_PATH, second)

    assert ((await new).status_code, (await old).status_code) == (200, 409)


async def test_an_answer_that_did_not_stay_exact_is_withheld(subject: Subject, first: str) -> None:
    exact = {paths.EXACT_VERSION_HEADER: first}
    request = asyncio.create_task(subject.complete(headers=exact, max_tokens=900, ignore_eos=True))
    await until_in_flight(subject, is_any=True)

    await subject.serve(subject.versions.second)

    reply = await request
    told = reply.json()
    assert (reply.status_code, told["exact"]) == (409, first)
    assert told["version"] == subject.versions.second


# --- errors ---------------------------------------------------------------------------------------


async def test_a_prompt_that_is_too_long_gets_the_error_that_clients_know(
    subject: Subject, first: str
) -> None:
    assert first
    for reply in (
        await subject.complete(prompt=TOO_LONG, max_tokens=2),
        await subject.complete(prompt=TOO_LONG, max_tokens=2, stream=True),
        await subject.continue_from(TOO_LONG),
        await subject.continue_from(TOO_LONG, stream=True),
        await subject.continue_from(FULL),
        await subject.continue_from(FULL, stream=True, stream_options={"include_usage": True}),
    ):
        assert reply.status_code == 400, reply.text
        assert "context length" in reply.json()["error"]["message"]
        assert int(reply.headers["content-length"]) == len(reply.content)


async def test_a_malformed_body_is_refused_by_the_name_of_its_field(
    subject: Subject, first: str
) -> None:
    assert first

    reply = await subject.complete(max_tokens="many")

    assert reply.status_code == 400
    assert "max_tokens" in reply.json()["error"]["param"]


# --- liveness -------------------------------------------------------------------------------------


async def test_a_paused_engine_is_alive(subject: Subject, first: str) -> None:
    for step in (None, paths.PAUSE_PATH):
        if step is not None:
            await subject.ok(step, subject.versions.second)

        reply = await subject.engine.get("/liveness", timeout=30)

        assert (reply.status_code, reply.json()) == (200, {"status": "ok"})
    await subject.ok(paths.RESUME_PATH, first)
