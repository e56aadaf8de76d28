"""Replies whose tokens have no log probabilities are errors, and others pass."""

import json
from typing import Any

import pytest

from rlfleet_engine.asgi import compact
from rlfleet_engine.rewrite.logprobs import check, watched
from rlfleet_engine.rewrite.rewrite import IncompleteReplyError

PATH = "/v1/completions"


def reply_of(logprobs: dict[str, Any] | None) -> bytes:
    return compact(
        {"choices": [{"index": 0, "logprobs": None}, {"index": 1, "logprobs": logprobs}]}
    )


def entry(value: object, *others: object) -> dict[str, Any]:
    return {"logprob": value, "top_logprobs": [{"logprob": other} for other in others]}


@pytest.mark.parametrize(
    "logprobs",
    [
        {"content": [entry(-1.0), entry(-9999.0)]},
        {"content": [entry(-1.0), entry(None)]},
        {"token_logprobs": [-1.0, -9999.0]},
        {"token_logprobs": [-1.0, None, -1.0], "top_logprobs": [None, None, None]},
    ],
)
def test_a_token_without_log_probability_is_seen(logprobs: dict[str, Any]) -> None:
    with pytest.raises(IncompleteReplyError, match="token 1"):
        check(reply_of(logprobs))


@pytest.mark.parametrize(
    "logprobs",
    [
        None,
        {"content": None},
        {"content": [entry(-1.0, -9999.0, None)]},
        {"token_logprobs": [-1.0, -2.0], "top_logprobs": [None, {"a": -9999.0}]},
        {"content": [{"token": "-9999.0", "logprob": -1.0}]},
    ],
)
def test_others_that_could_have_been_made_need_none(logprobs: dict[str, Any] | None) -> None:
    check(reply_of(logprobs))


def streamed(*values: object) -> bytes:
    return reply_of({"text_offset": [0], "token_logprobs": [*values], "tokens": ["a"]})


@pytest.mark.parametrize("value", [None, -9999.0])
def test_one_that_is_missing_in_an_event_of_a_completion_is_seen(value: object) -> None:
    with pytest.raises(IncompleteReplyError, match="token 0"):
        check(streamed(value))


def test_a_prompt_that_is_echoed_has_none_of_its_first_token_and_of_that_alone() -> None:
    check(streamed(None, -1.0), echoes=True)
    for values in ((None, None), (-1.0, None), (-9999.0,)):
        with pytest.raises(IncompleteReplyError):
            check(streamed(*values), echoes=True)


@pytest.mark.parametrize(
    ("asked", "is_good"), [({"echo": True}, True), ({"echo": False}, False), ({}, False)]
)
def test_whether_the_prompt_was_echoed_is_the_request_s_word(
    asked: dict[str, bool], *, is_good: bool
) -> None:
    found = watched(PATH, json.dumps({"prompt": "x", "return_token_ids": True} | asked).encode())
    assert found is not None
    assert found.back is not None

    if is_good:
        assert found.back.event(streamed(None)) == streamed(None)
    else:
        with pytest.raises(IncompleteReplyError):
            found.back.event(streamed(None))


def test_a_body_that_is_no_reply_passes() -> None:
    check(b'-9999.0 "logprob":null')
    check(b'{"error":{"message":"-9999.0"}}')


@pytest.mark.parametrize("asked", ["return_token_ids", "return_tokens_as_token_ids"])
def test_only_replies_with_ids_are_watched_and_their_requests_stay_the_same(asked: str) -> None:
    body = json.dumps({"prompt": "x", asked: True}).encode()

    found = watched(PATH, body)

    assert found is not None
    assert (found.path, found.body is body) == (PATH, True)
    assert watched(PATH, b'{"prompt": "what is return_token_ids?"}') is None
