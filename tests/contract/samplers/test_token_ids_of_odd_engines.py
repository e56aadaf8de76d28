"""Tokens out of engines that only a fake can be: with experts, broken, aborted at will."""

import asyncio
import json
from base64 import b64decode
from typing import Any

import pytest
from renderers.client import parse_generate_response

from rlfleet_contract import paths
from tests.contract.samplers.test_token_ids import TOKENS, content_of, events_of
from tests.contract.samplers.test_traffic import until_in_flight
from tests.contract.subject import Subject
from tests.fakes.behaviour import Behaviour
from tests.fakes.experts import CHOSEN, LAYERS, routed
from tests.fakes.worker import Worker

PREFIX = b'"routed_experts":{"data":"'
"""What renderers cuts at, in the raw bytes."""


@pytest.fixture
async def serving(subject: Subject) -> Subject:
    """The worker, with its first version."""
    await subject.serve(subject.versions.first)
    return subject


def check(experts: dict[str, Any], rows: int) -> None:
    assert experts["shape"] == [rows, LAYERS, CHOSEN]
    assert experts["dtype"] == "uint8"
    assert b64decode(experts["data"]) == routed(rows)


async def test_routed_experts_are_returned_as_clients_slice_them(
    serving: Subject,
    fake: Worker,
) -> None:
    fake.engine.behaviour = Behaviour(routed_experts=True)

    raw = (await serving.continue_from(TOKENS, {"max_tokens": 3, "logprobs": 1})).content

    begin = raw.index(PREFIX) + len(PREFIX)
    end = raw.index(b'"', begin)
    rest = json.loads(raw[:begin] + raw[end:])
    experts = rest["choices"][0]["routed_experts"]
    assert experts["data"] == ""
    check(experts | {"data": raw[begin:end].decode()}, len(TOKENS) + 2)


async def test_routed_experts_have_their_start(
    serving: Subject,
    fake: Worker,
) -> None:
    fake.engine.behaviour = Behaviour(routed_experts=True)
    sampling = {"routed_experts_prompt_start": 2}

    generated = content_of(await serving.continue_from(TOKENS, sampling))
    chat = content_of(
        await serving.chat(
            tokens=TOKENS, routed_experts_prompt_start=2, nvext={"extra_fields": ["routed_experts"]}
        )
    )

    assert generated["choices"][0]["routed_experts"]["start"] == 2
    assert chat["nvext"]["routed_experts"]["start"] == 2


async def test_routed_experts_of_a_chat_are_under_nvext_alone(
    serving: Subject,
    fake: Worker,
) -> None:
    fake.engine.behaviour = Behaviour(routed_experts=True)

    reply = await serving.chat(
        n=2, tokens=TOKENS, nvext={"extra_fields": ["engine_data", "routed_experts"]}
    )

    for choice in content_of(reply)["choices"]:
        assert "routed_experts" not in choice
        check(choice["nvext"]["routed_experts"], len(TOKENS) + 2)
        assert choice["nvext"]["engine_data"]["routed_experts"] == choice["nvext"]["routed_experts"]


async def test_a_chat_that_does_not_ask_for_them_is_vllm_s_own(
    serving: Subject,
    fake: Worker,
) -> None:
    fake.engine.behaviour = Behaviour(routed_experts=True)

    assert isinstance(content_of(await serving.chat())["choices"][0]["routed_experts"], str)


async def test_a_token_without_log_probability_makes_the_reply_an_error(
    serving: Subject,
    fake: Worker,
) -> None:
    fake.engine.behaviour = Behaviour(nan_logprobs=True)

    for reply in (
        await serving.continue_from(TOKENS, {"logprobs": 1}),
        await serving.chat(logprobs=True, nvext={"extra_fields": ["engine_data"]}),
        await serving.chat(logprobs=True, tokens=TOKENS),
        await serving.chat(logprobs=True, return_token_ids=True),
        await serving.chat(logprobs=True, top_logprobs=0, return_tokens_as_token_ids=True),
        await serving.complete(max_tokens=2, logprobs=0, return_token_ids=True),
        await serving.complete(max_tokens=2, logprobs=0, return_tokens_as_token_ids=True),
    ):
        assert reply.status_code == 500
        assert "log probability" in reply.json()["error"]["message"]
        assert int(reply.headers["content-length"]) == len(reply.content)


async def test_a_token_without_log_probability_ends_a_stream_with_an_error(
    serving: Subject,
    fake: Worker,
) -> None:
    fake.engine.behaviour = Behaviour(nan_logprobs=True)

    for reply in (
        await serving.continue_from(TOKENS, {"logprobs": 1}, stream=True),
        await serving.complete(max_tokens=2, stream=True, logprobs=0, return_token_ids=True),
        await serving.complete(
            max_tokens=2, stream=True, logprobs=0, return_tokens_as_token_ids=True
        ),
    ):
        assert [event["error"]["code"] for event in events_of(reply)] == [500], reply.text


async def test_without_log_probabilities_no_reply_has_them(
    serving: Subject,
    fake: Worker,
) -> None:
    fake.engine.behaviour = Behaviour(nan_logprobs=True)

    assert (await serving.continue_from(TOKENS)).status_code == 200


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "stream"])
async def test_after_an_abort_the_generated_tokens_are_returned(
    serving: Subject,
    fake: Worker,
    *,
    is_streamed: bool,
) -> None:
    fake.engine.behaviour = Behaviour(token_s=0.02)
    request = asyncio.create_task(
        serving.chat(
            tokens=TOKENS,
            max_tokens=900,
            logprobs=True,
            stream=is_streamed,
            nvext={"extra_fields": ["engine_data"]},
        )
    )
    await until_in_flight(serving, is_any=True)
    await asyncio.sleep(0.1)

    second = serving.versions.second
    await serving.ok(paths.PREPARE_PATH, second)
    await serving.ok(paths.UPDATE_WEIGHTS_PATH, second, mode="Abort")

    reply = await request
    if is_streamed:
        *_, last = events_of(reply)
    else:
        last = content_of(reply)
    (choice,), data = last["choices"], last["nvext"]["engine_data"]
    assert choice["finish_reason"] == "abort"
    assert 0 < len(data["completion_token_ids"]) < 900
    assert len(data["completion_logprobs"]) == len(data["completion_token_ids"])


async def test_a_request_that_waits_at_the_gate_is_turned_once_it_passes(
    serving: Subject,
) -> None:
    second = serving.versions.second
    await serving.ok(paths.PREPARE_PATH, second)
    await serving.ok(paths.PAUSE_PATH, second)
    waiting = asyncio.create_task(
        serving.chat("/v1/chat/completions/tokens", tokens=TOKENS, return_token_ids=True)
    )
    done, _ = await asyncio.wait([waiting], timeout=0.2)
    assert not done

    await serving.ok(paths.UPDATE_WEIGHTS_PATH, second)

    assert content_of(await waiting)["prompt_token_ids"] == TOKENS
    assert (await waiting).headers[paths.VERSION_HEADER] == second


async def test_renderers_read_routed_experts(serving: Subject, fake: Worker) -> None:
    fake.engine.behaviour = Behaviour(routed_experts=True)

    raw = (await serving.continue_from(TOKENS, {"max_tokens": 3, "logprobs": 1})).content

    experts = parse_generate_response(raw)["choices"][0]["routed_experts"]
    check(experts | {"data": bytes(experts["data"])}, len(TOKENS) + 2)
