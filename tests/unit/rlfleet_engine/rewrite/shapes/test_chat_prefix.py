"""A chat completion whose conversation keeps its ids is asked of vLLM as a prompt of ids."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from rlfleet_engine.json_body import FieldError
from rlfleet_engine.rewrite.rewrite import RequestRewrite
from rlfleet_engine.rewrite.shapes import chat_prefix
from rlfleet_engine.vllm.vocabulary import Vocabulary
from tests.fakes.prefixes import MAX_MODEL_LEN
from tests.fakes.tokenizer import END, VOCABULARY, rendered, spelled

ASKED = [{"role": "user", "content": "one two"}]
SAID = {"role": "assistant", "content": "three four"}
NEXT = {"role": "user", "content": "one"}
MESSAGES = [*ASKED, SAID, NEXT]
MADE = [*spelled("three four"), END]
PROMPT = rendered({"messages": ASKED})


class Renderer:
    """vLLM's renderer, which keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, Any]] = []

    async def __call__(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        assert path == "/v1/chat/completions/render"
        self.asked.append(body)
        return {"token_ids": rendered(dict(body))}

    def vocabulary(self) -> Vocabulary:
        return VOCABULARY

    def context_length(self) -> int:
        return MAX_MODEL_LEN


async def turned(body: dict[str, Any], ask: Renderer | None = None) -> dict[str, Any]:
    found = await chat_prefix.turn(json.dumps(body).encode(), ask or Renderer())
    assert isinstance(found, RequestRewrite)
    assert found.path == "/v1/chat/completions"
    asked = json.loads(found.body)
    assert isinstance(asked, dict)
    return asked


async def test_the_prompt_is_given_in_ids_and_begins_with_those_to_keep() -> None:
    ids = [*PROMPT, *MADE]

    asked = await turned({"messages": MESSAGES, "required_prefix_token_ids": ids, "n": 2})

    given = asked["kv_transfer_params"]["prompt_token_ids"]
    assert given == [*ids, *rendered({"messages": MESSAGES})[-len(given) + len(ids) :]]
    assert "required_prefix_token_ids" not in asked
    assert asked["n"] == 2


async def test_ids_on_the_message_that_they_made_do_the_same() -> None:
    on_it = SAID | {"prompt_token_ids": PROMPT, "generation_token_ids": MADE}
    ask = Renderer()

    asked = await turned({"messages": [*ASKED, on_it, NEXT]}, ask)

    assert asked == await turned(
        {"messages": MESSAGES, "required_prefix_token_ids": [*PROMPT, *MADE]}
    )
    assert all("prompt_token_ids" not in one for body in ask.asked for one in body["messages"])


async def test_ids_of_an_older_message_stand_for_the_messages_up_to_it() -> None:
    """The turn after it has none, and is not lost."""
    on_it = SAID | {"prompt_token_ids": PROMPT, "generation_token_ids": MADE}
    later = [NEXT, {"role": "assistant", "content": "two"}, NEXT]

    asked = await turned({"messages": [*ASKED, on_it, *later]})

    given = asked["kv_transfer_params"]["prompt_token_ids"]
    assert given[: len(PROMPT) + len(MADE)] == [*PROMPT, *MADE]
    assert given.count(END) == 5


async def test_a_turn_that_is_rendered_shorter_later_is_counted_and_not_measured() -> None:
    """Templates leave out of earlier turns what a model thought."""

    class Forgetful(Renderer):
        async def __call__(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
            messages = [dict(one) for one in body["messages"]]
            for one in messages[:-1]:
                one["content"] = one["content"].replace("(a long thought)", "")
            return await super().__call__(path, {**body, "messages": messages})

    thought = {"role": "assistant", "content": "(a long thought)two"}
    messages = [*ASKED, thought, NEXT]
    ids = [*PROMPT, *spelled("(a long thought)two"), END]

    asked = await turned({"messages": messages, "required_prefix_token_ids": ids}, Forgetful())

    given = asked["kv_transfer_params"]["prompt_token_ids"]
    assert given == [*ids, *after(messages)]


def after(messages: list[dict[str, str]]) -> list[int]:
    """Return what is rendered behind the last end of the turn before the last message."""
    whole = rendered({"messages": messages})
    ends = [place for place, one in enumerate(whole) if one == END]
    return whole[ends[-2] + 1 :]


@pytest.mark.parametrize(
    "other", [{"tokens": [1]}, {"nvext": {"token_data": [1]}}], ids=["tokens", "token_data"]
)
async def test_kept_ids_conflict_with_a_prompt_of_ids(other: dict[str, Any]) -> None:
    body = {"messages": MESSAGES, "required_prefix_token_ids": PROMPT} | other

    with pytest.raises(FieldError) as refused:
        await turned(body)

    assert refused.value.field == "required_prefix_token_ids"


async def test_a_whole_prompt_in_ids_goes_before_ids_on_messages() -> None:
    on_it = SAID | {"prompt_token_ids": PROMPT, "generation_token_ids": MADE}
    ask = Renderer()

    asked = await turned({"messages": [*ASKED, on_it, NEXT], "tokens": [1, 5]}, ask)

    assert asked["kv_transfer_params"] == {"prompt_token_ids": [1, 5]}
    assert ask.asked == []


async def test_a_chat_without_kept_ids_is_not_rendered_twice() -> None:
    ask = Renderer()
    body = {"messages": MESSAGES, "required_prefix_token_ids": None}

    assert await chat_prefix.turn(json.dumps(body).encode(), ask) is None
    assert ask.asked == []
