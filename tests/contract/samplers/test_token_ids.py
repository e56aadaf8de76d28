"""Tokens in, tokens out: ids are the engine's on every route, and nothing is made up."""

import json
import math
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from rlfleet_contract import paths
from tests.contract.subject import Subject

TOKENS = [11, 12, 13]
ROUTE = "/v1/chat/completions/tokens"
ALL = ["token_ids", "prompt_token_ids", "completion_token_ids", "engine_data", "routed_experts"]


@pytest.fixture
async def serving(subject: Subject) -> Subject:
    """The worker, with its first version."""
    await subject.serve(subject.versions.first)
    return subject


def content_of(reply: httpx.Response) -> dict[str, Any]:
    assert reply.status_code == 200, reply.text
    content = reply.json()
    assert isinstance(content, dict)
    return content


def events_of(reply: httpx.Response) -> Iterator[dict[str, Any]]:
    assert reply.status_code == 200, reply.text
    *events, last = [one for one in reply.text.split("\n\n") if one]
    assert last == "data: [DONE]"
    for event in events:
        yield json.loads(event.removeprefix("data: "))


def logprobs_of(choice: dict[str, Any]) -> list[float]:
    return [entry["logprob"] for entry in choice["logprobs"]["content"]]


def check(choice: dict[str, Any], data: dict[str, Any]) -> None:
    """Check that a choice and its engine data have the same tokens and log probabilities."""
    assert data["completion_token_ids"] == choice["token_ids"]
    assert data["completion_logprobs"] == logprobs_of(choice)
    assert len(data["completion_logprobs"]) == len(data["completion_token_ids"])
    assert all(math.isfinite(one) and one > -9999 for one in data["completion_logprobs"])


# --- tokens in ------------------------------------------------------------------------------------


async def test_a_prompt_in_ids_gives_what_the_messages_that_make_them_give(
    serving: Subject,
) -> None:
    asked: dict[str, Any] = {"return_token_ids": True, "logprobs": True}
    rendered = content_of(await serving.chat(**asked))

    given = content_of(await serving.chat(**asked, tokens=rendered["prompt_token_ids"]))

    assert given["prompt_token_ids"] == rendered["prompt_token_ids"]
    assert given["choices"] == rendered["choices"]


async def test_the_ids_replace_what_the_messages_would_give(serving: Subject) -> None:
    for reply in (
        await serving.chat(tokens=TOKENS, return_token_ids=True),
        await serving.chat(ROUTE, tokens=TOKENS, return_token_ids=True),
        await serving.chat(ROUTE, tokens=TOKENS, return_token_ids=True, messages=None),
        await serving.chat(nvext={"token_data": TOKENS}, return_token_ids=True),
        await serving.chat(tokens=TOKENS, nvext={"token_data": TOKENS}, return_token_ids=True),
        await serving.chat(nvext={"token_data": TOKENS}, return_token_ids=True, messages=None),
    ):
        assert content_of(reply)["prompt_token_ids"] == TOKENS


async def test_three_routes_return_the_same_tokens_for_the_same_prompt(serving: Subject) -> None:
    chat = content_of(
        await serving.chat(ROUTE, tokens=TOKENS, return_token_ids=True, logprobs=True)
    )
    completion = content_of(
        await serving.complete(prompt=TOKENS, max_tokens=3, return_token_ids=True, logprobs=0)
    )
    generated = content_of(await serving.continue_from(TOKENS, {"max_tokens": 3, "logprobs": 1}))

    (one,), (two,), (three,) = (each["choices"] for each in (chat, completion, generated))
    assert one["token_ids"] == two["token_ids"] == three["token_ids"]
    assert logprobs_of(one) == two["logprobs"]["token_logprobs"] == logprobs_of(three)
    assert chat["prompt_token_ids"] == two["prompt_token_ids"] == TOKENS


@pytest.mark.parametrize(
    ("path", "fields", "named"),
    [
        (ROUTE, {}, "tokens"),
        (ROUTE, {"tokens": []}, "tokens"),
        (ROUTE, {"tokens": "11"}, "tokens"),
        (ROUTE, {"tokens": [1.5]}, "tokens"),
        (ROUTE, {"tokens": [11, 99_999]}, "tokens"),
        (ROUTE, {"nvext": {"token_data": [11, 99_999]}}, "nvext.token_data"),
        (ROUTE, {"tokens": TOKENS, "nvext": {"token_data": [7]}}, "nvext.token_data"),
        (ROUTE, {"tokens": TOKENS, "echo": True}, "echo"),
        (ROUTE, {"tokens": TOKENS, "truncate_prompt_tokens": 2}, "truncate_prompt_tokens"),
        (
            ROUTE,
            {"tokens": TOKENS, "messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages",
        ),
        ("/v1/chat/completions", {"nvext": 7}, "nvext"),
        ("/v1/chat/completions", {"nvext": {"extra_fields": "token_ids"}}, "nvext.extra_fields"),
        (
            "/v1/chat/completions",
            {"nvext": {"agent_hints": {"priority": "high"}}},
            "nvext.agent_hints.priority",
        ),
        (
            "/v1/chat/completions",
            {"nvext": {"extra_fields": ["routed_experts"]}, "stream": True},
            "nvext.extra_fields",
        ),
        (
            "/v1/chat/completions",
            {"nvext": {"extra_fields": ["engine_data"]}, "include_reasoning": False},
            "include_reasoning",
        ),
    ],
)
async def test_what_cannot_be_taken_is_refused_by_the_name_of_its_field(
    serving: Subject, path: str, fields: dict[str, Any], named: str
) -> None:
    reply = await serving.chat(path, **fields)

    assert (reply.status_code, reply.json()["error"]["param"]) == (400, named), reply.text
    assert named in reply.json()["error"]["message"]
    assert reply.headers[paths.VERSION_HEADER] == serving.versions.first
    assert int(reply.headers["content-length"]) == len(reply.content)


async def test_ids_beyond_the_context_get_the_error_that_clients_know(
    serving: Subject,
) -> None:
    reply = await serving.chat(ROUTE, tokens=[11] * 1100)

    assert reply.status_code == 400
    assert "context length" in reply.json()["error"]["message"]


# --- tokens out -----------------------------------------------------------------------------------


async def test_all_requested_fields_are_returned_and_agree(serving: Subject) -> None:
    reply = content_of(
        await serving.chat(logprobs=True, nvext={"token_data": TOKENS, "extra_fields": ALL})
    )

    (choice,), nvext = reply["choices"], reply["nvext"]
    check(choice, nvext["engine_data"])
    assert nvext["completion_token_ids"] == choice["token_ids"]
    assert nvext["token_ids"] == nvext["prompt_token_ids"] == reply["prompt_token_ids"] == TOKENS
    assert nvext["engine_data"]["prompt_token_ids"] == TOKENS


async def test_a_dense_model_has_no_routed_experts_and_says_so(serving: Subject) -> None:
    reply = content_of(
        await serving.chat(nvext={"extra_fields": ["engine_data", "routed_experts"]})
    )
    generated = content_of(await serving.continue_from(TOKENS, {"logprobs": 1}))

    assert reply["nvext"]["routed_experts"] is None
    assert reply["nvext"]["engine_data"]["routed_experts"] is None
    assert generated["choices"][0]["routed_experts"] is None


async def test_only_requested_fields_are_returned(serving: Subject) -> None:
    one = content_of(await serving.chat(nvext={"extra_fields": ["completion_token_ids", "timing"]}))
    none = content_of(await serving.chat(nvext={"extra_fields": []}))

    assert list(one["nvext"]) == ["completion_token_ids"]
    assert "nvext" not in none
    assert none["choices"][0]["token_ids"] is None


async def test_log_probabilities_are_returned_on_request(serving: Subject) -> None:
    reply = content_of(await serving.chat(nvext={"extra_fields": ["engine_data"]}))

    assert "completion_logprobs" not in reply["nvext"]["engine_data"]
    assert len(reply["nvext"]["engine_data"]["completion_token_ids"]) == 3


async def test_each_of_several_choices_has_its_own(serving: Subject) -> None:
    reply = content_of(
        await serving.chat(
            n=3, temperature=1, logprobs=True, nvext={"token_data": TOKENS, "extra_fields": ALL}
        )
    )

    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
    for choice in reply["choices"]:
        check(choice, choice["nvext"]["engine_data"])
        assert choice["nvext"]["completion_token_ids"] == choice["token_ids"]
    assert reply["nvext"] == {"token_ids": TOKENS, "prompt_token_ids": TOKENS}


async def test_a_stream_returns_all_of_a_choice_with_its_last_event(serving: Subject) -> None:
    wanted = ["completion_token_ids", "engine_data", "prompt_token_ids"]
    reply = await serving.chat(
        n=2,
        temperature=1,
        stream=True,
        logprobs=True,
        nvext={"token_data": TOKENS, "extra_fields": wanted},
    )

    came: dict[int, dict[str, Any]] = {}
    for event in events_of(reply):
        for choice in event["choices"]:
            got = came.setdefault(choice["index"], {"token_ids": [], "logprobs": {"content": []}})
            got["token_ids"] += choice.get("token_ids") or []
            got["logprobs"]["content"] += (choice.get("logprobs") or {}).get("content") or []
            assert ("nvext" in event) is (choice.get("finish_reason") is not None)
            if "nvext" in event:
                check(got, event["nvext"]["engine_data"])
                assert event["nvext"]["completion_token_ids"] == got["token_ids"]
                assert event["nvext"]["prompt_token_ids"] == TOKENS
                got["is_told"] = True
    assert [got.get("is_told") for got in came.values()] == [True, True]


async def test_a_stream_returns_the_same_as_a_whole_reply(serving: Subject) -> None:
    asked: dict[str, Any] = {
        "logprobs": True,
        "nvext": {"token_data": TOKENS, "extra_fields": ["engine_data"]},
    }
    whole = content_of(await serving.chat(**asked))["nvext"]["engine_data"]

    *_, last = [
        one for one in events_of(await serving.chat(**asked, stream=True)) if one["choices"]
    ]

    streamed = last["nvext"]["engine_data"]
    assert whole.pop("routed_experts") is None
    assert streamed["completion_logprobs"] == pytest.approx(whole.pop("completion_logprobs"))
    assert streamed | whole == streamed


async def test_tokens_as_names_of_ids_name_the_ids(serving: Subject) -> None:
    asked: dict[str, Any] = {"return_token_ids": True, "return_tokens_as_token_ids": True}
    chat = content_of(await serving.chat(ROUTE, tokens=TOKENS, logprobs=True, **asked))["choices"][
        0
    ]
    completion = content_of(await serving.complete(max_tokens=3, logprobs=0, **asked))["choices"][0]

    names = [entry["token"] for entry in chat["logprobs"]["content"]]
    assert names == [f"token_id:{token}" for token in chat["token_ids"]]
    assert completion["logprobs"]["tokens"] == [
        f"token_id:{token}" for token in completion["token_ids"]
    ]


# --- what else nvext brings, and what holds for every request -------------------------------------


async def test_a_hint_of_priority_is_taken(serving: Subject) -> None:
    reply = await serving.chat(nvext={"agent_hints": {"priority": 3, "osl": 7}})

    assert reply.status_code == 200, reply.text


async def test_a_salt_in_nvext_counts_for_a_prompt_in_ids(serving: Subject) -> None:
    prompt = [100 + place % 90 for place in range(400)]

    async def cached(salt: str) -> int:
        nvext = {"token_data": prompt, "cache_salt": salt}
        usage = content_of(await serving.chat(nvext=nvext))["usage"]
        return int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)

    assert await cached("tokens-a") == 0

    assert await cached("tokens-a") > 0
    assert await cached("tokens-b") == 0


async def test_a_demand_holds_for_them_too(serving: Subject) -> None:
    headers = {paths.EXACT_VERSION_HEADER: serving.versions.second}

    reply = await serving.chat(ROUTE, headers, tokens=TOKENS)

    assert (reply.status_code, reply.json()["version"]) == (409, serving.versions.first)


async def test_replies_have_their_version_and_their_length(serving: Subject) -> None:
    for reply in (
        await serving.chat(ROUTE, tokens=TOKENS, nvext={"extra_fields": ALL}),
        await serving.continue_from(TOKENS, {"logprobs": 1}),
    ):
        assert reply.headers[paths.END_VERSION_HEADER] == serving.versions.first
        assert int(reply.headers["content-length"]) == len(reply.content)


# --- renderers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", [{"n": 1}, {"n": 2, "temperature": 1}], ids=["one", "two"])
async def test_generate_gives_each_token_its_name_and_its_log_probability(
    serving: Subject, sampling: dict[str, Any]
) -> None:
    """As renderers 0.1.12 demands it; it passes on sampling parameters that vLLM does not know."""
    reply = await serving.continue_from(
        TOKENS, {"logprobs": 1, "skip_special_tokens": False, "spaces": 1, **sampling}
    )

    content = content_of(reply)
    assert content["request_id"]
    assert content["usage"]["prompt_tokens"] == len(TOKENS)
    assert len(content["choices"]) == sampling["n"]
    for choice in content["choices"]:
        names = [entry["token"] for entry in choice["logprobs"]["content"]]
        assert names == [f"token_id:{token}" for token in choice["token_ids"]]
        assert all(math.isfinite(one) and one > -9999 for one in logprobs_of(choice))
    assert b": " not in reply.content


async def test_a_stream_of_generate_gives_them_too(serving: Subject) -> None:
    whole = content_of(await serving.continue_from(TOKENS, {"logprobs": 1}))["choices"][0]
    reply = await serving.continue_from(TOKENS, {"logprobs": 1}, stream=True)

    ids, names = [], []
    for event in events_of(reply):
        for choice in event["choices"]:
            ids += choice["token_ids"]
            names += [entry["token"] for entry in choice["logprobs"]["content"]]
    assert ids == whole["token_ids"]
    assert names == [f"token_id:{token}" for token in ids]


async def test_generate_without_log_probabilities_is_vllm_s_own(serving: Subject) -> None:
    choice = content_of(await serving.continue_from(TOKENS))["choices"][0]

    assert choice["logprobs"] is None
    assert len(choice["token_ids"]) == 2
