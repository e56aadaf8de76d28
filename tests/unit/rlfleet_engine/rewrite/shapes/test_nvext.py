"""The fields that ``nvext`` requests of vLLM, and replies that lack one."""

from typing import Any

import pytest

from rlfleet_engine.json_body import FieldError
from rlfleet_engine.rewrite.rewrite import IncompleteReplyError
from rlfleet_engine.rewrite.shapes.nvext import ChoiceTokens, WantedFields, asked, wanted_of, whole

ALL = WantedFields(frozenset({"engine_data"}))


def reply_of(**choice: Any) -> dict[str, Any]:
    said = {"index": 0, "token_ids": [1, 2], "logprobs": None} | choice
    return {"prompt_token_ids": [7], "choices": [said]}


def logprobs(*values: object) -> dict[str, Any]:
    return {"content": [{"logprob": value} for value in values]}


def test_the_higher_hint_goes_first_as_the_lower_priority() -> None:
    made = asked({"nvext": {"agent_hints": {"priority": 3}}}, WantedFields())

    assert made == {"priority": -3}


def test_a_priority_and_a_salt_at_the_top_level_have_precedence() -> None:
    nvext = {"agent_hints": {"priority": 3}, "cache_salt": "a"}

    made = asked({"priority": 1, "cache_salt": "b", "nvext": nvext}, WantedFields())

    assert made == {"priority": 1, "cache_salt": "b"}


def test_ids_are_requested_if_any_field_is() -> None:
    content = {"nvext": {"extra_fields": ["engine_data", "timing"]}}

    assert asked(content, wanted_of(content)) == {"return_token_ids": True}
    assert asked(content, WantedFields()) == {}


@pytest.mark.parametrize("priority", [True, 1.5, "1", [1]])
def test_a_hint_that_is_no_whole_number_is_refused(priority: object) -> None:
    with pytest.raises(FieldError) as refused:
        asked({"nvext": {"agent_hints": {"priority": priority}}}, WantedFields())

    assert refused.value.field == "nvext.agent_hints.priority"


def test_a_request_without_nvext_is_returned_itself() -> None:
    content: dict[str, Any] = {"messages": [], "nvext": None}

    assert asked(content, wanted_of(content)) is content


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"token_ids": None}, "returned no token_ids"),
        ({"logprobs": logprobs(-1.0)}, "1 log probabilities for 2 tokens"),
        ({"logprobs": logprobs(-1.0, -9999.0)}, "token 1"),
        ({"logprobs": logprobs(None, -1.0)}, "token 0"),
        ({"logprobs": logprobs(-1.0, float("nan"))}, "token 1"),
        ({"logprobs": logprobs(-1.0, float("-inf"))}, "token 1"),
        ({"routed_experts": "oops"}, "routed experts"),
    ],
)
def test_a_reply_that_lacks_something_is_an_error(choice: dict[str, Any], words: str) -> None:
    with pytest.raises(IncompleteReplyError, match=words):
        whole(reply_of(**choice), ALL)


def test_a_reply_without_the_prompt_s_ids_is_an_error() -> None:
    with pytest.raises(IncompleteReplyError, match="prompt_token_ids"):
        whole(reply_of() | {"prompt_token_ids": None}, ALL)


def test_a_choice_without_a_token_agrees_with_itself() -> None:
    told = whole(reply_of(token_ids=[], logprobs=logprobs()), ALL)["nvext"]["engine_data"]

    assert (told["completion_token_ids"], told["completion_logprobs"]) == ([], [])


def test_parts_that_come_one_by_one_are_one() -> None:
    parts = ChoiceTokens()
    for token in range(3):
        parts.add(ChoiceTokens([token], [-1.0]))

    assert (parts.ids, parts.logprobs) == ([0, 1, 2], [-1.0] * 3)
