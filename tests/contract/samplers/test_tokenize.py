"""/tokenize and /detokenize count what the engine computes, and refuse what they would guess."""

import asyncio
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from rlfleet_contract import paths
from tests.contract.samplers.test_versions import first  # noqa: F401
from tests.contract.subject import Subject

ASKED = [{"role": "user", "content": "one two"}]
SAID = {"role": "assistant", "content": "three four"}
NEXT = {"role": "user", "content": "one"}
END = "<|im_end|>"
TOKEN_BYTES = {chr(byte): byte for byte in [*range(33, 127), *range(161, 173), *range(174, 256)]}
TOKEN_BYTES |= {
    chr(256 + place): byte
    for place, byte in enumerate(b for b in range(256) if chr(b) not in TOKEN_BYTES)
}
"""Which byte a character of a token's name stands for, with tokenizers of bytes."""


@dataclass(frozen=True)
class Tokens:
    """The engine's tokenizer, over its routes."""

    engine: httpx.AsyncClient

    async def reply(self, **fields: Any) -> httpx.Response:
        return await self.engine.post("/tokenize", json=fields)

    async def fields(self, **fields: Any) -> dict[str, Any]:
        reply = await self.reply(**fields)
        assert reply.status_code == 200, reply.text
        reply_fields = reply.json()
        assert isinstance(reply_fields, dict)
        assert reply_fields["count"] == len(reply_fields["tokens"])
        return reply_fields

    async def ids(self, **fields: Any) -> list[int]:
        ids = (await self.fields(**fields))["tokens"]
        assert isinstance(ids, list)
        return ids

    async def spelled(self, text: str) -> list[int]:
        """Cut a text into its letters, as no tokenizer would."""
        return [one for letter in text for one in await self.ids(prompt=letter)]

    async def text(self, ids: list[int]) -> str:
        reply = await self.engine.post("/detokenize", json={"tokens": ids})
        assert reply.status_code == 200, reply.text
        return str(reply.json()["prompt"])


@pytest.fixture
def tokens(subject: Subject, first: str) -> Tokens:  # noqa: F811
    assert first
    return Tokens(subject.engine)


def assert_refused(reply: httpx.Response, field: str) -> None:
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert field in error["message"]
    assert error["param"] == field


# --- while the worker is paused -------------------------------------------------------------------


async def test_a_paused_worker_tokenizes_at_once(subject: Subject, tokens: Tokens) -> None:
    second = subject.versions.second
    await subject.ok(paths.PREPARE_PATH, second)
    await subject.ok(paths.PAUSE_PATH, second)

    async with asyncio.timeout(5):
        reply = await tokens.reply(prompt="one two")
        text = await tokens.text(reply.json()["tokens"])
        unmet = await subject.engine.post(
            "/tokenize", json={"prompt": "one"}, headers={paths.EXACT_VERSION_HEADER: second}
        )

    assert text == "one two"
    assert reply.headers[paths.VERSION_HEADER] == subject.versions.first
    assert (unmet.status_code, unmet.json()["version"]) == (409, subject.versions.first)
    await subject.ok(paths.UPDATE_WEIGHTS_PATH, second)


# --- the two forms --------------------------------------------------------------------------------


async def test_a_text_comes_back_from_its_ids(tokens: Tokens) -> None:
    text = "one two\nthree naïve 🙂"

    assert await tokens.text(await tokens.ids(prompt=text)) == text


async def test_messages_are_rendered_with_a_generation_prompt_unless_it_is_denied(
    tokens: Tokens,
) -> None:
    closed = await tokens.ids(messages=ASKED, add_generation_prompt=False)
    opened = await tokens.ids(messages=ASKED)

    assert opened[: len(closed)] == closed
    assert await tokens.text(opened[len(closed) :]) == "<|im_start|>assistant\n"


async def test_a_final_message_can_be_left_open(tokens: Tokens) -> None:
    flags = {"add_generation_prompt": False, "continue_final_message": True}

    left_open = await tokens.ids(messages=[*ASKED, SAID], **flags)

    assert (await tokens.text(left_open)).endswith(SAID["content"])


async def test_the_model_needs_no_name_and_a_wrong_one_is_not_found(
    tokens: Tokens, subject: Subject
) -> None:
    ids = await tokens.ids(prompt="one")

    assert await tokens.ids(prompt="one", model=subject.model_name) == ids
    assert (await tokens.reply(prompt="one", model="nobody")).status_code == 404


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"prompt": "one", "messages": ASKED}, "prompt"),
        ({"prompt": "one", "temperature": 1}, "temperature"),
        ({"prompt": "one", "add_generation_prompt": False}, "add_generation_prompt"),
        ({"prompt": "one", "required_prefix_token_ids": [1]}, "required_prefix_token_ids"),
        ({"messages": ASKED, "add_generation_promt": False}, "add_generation_promt"),
        (
            {"messages": ASKED, "chat_template_kwargs": {"continue_final_message": True}},
            "chat_template_kwargs.continue_final_message",
        ),
        (
            {"messages": ASKED, "chat_template_kwargs": {"add_generation_prompt": False}},
            "chat_template_kwargs.add_generation_prompt",
        ),
        ({"messages": ASKED, "chat_template_kwargs": [1]}, "chat_template_kwargs"),
    ],
    ids=lambda one: one if isinstance(one, str) else None,
)
async def test_what_would_be_passed_over_is_refused_by_its_name(
    tokens: Tokens, fields: dict[str, Any], named: str
) -> None:
    assert_refused(await tokens.reply(**fields), named)


async def test_a_flag_that_says_the_same_twice_is_no_fault(tokens: Tokens) -> None:
    plain = await tokens.ids(messages=ASKED)

    assert plain == await tokens.ids(
        messages=ASKED, chat_template_kwargs={"add_generation_prompt": True}, prompt=None
    )


# --- tokens by name, and ids without one ----------------------------------------------------------


async def test_a_part_of_a_character_keeps_its_bytes(tokens: Tokens) -> None:
    reply_fields = await tokens.fields(prompt="é🙂", return_token_strs=True)

    names = reply_fields["token_strs"]
    assert len(names) == reply_fields["count"] > 2
    assert bytes(TOKEN_BYTES[one] for one in "".join(names)).decode() == "é🙂"


async def test_tokens_have_no_names_unless_they_are_asked_for(tokens: Tokens) -> None:
    assert (await tokens.fields(prompt="one"))["token_strs"] is None


@pytest.mark.parametrize("unknown", [100_000_000, 2**40], ids=str)
async def test_an_id_that_the_model_does_not_have_is_refused(tokens: Tokens, unknown: int) -> None:
    reply = await tokens.engine.post("/detokenize", json={"tokens": [5, unknown]})

    assert_refused(reply, "tokens")
    assert str(unknown) in reply.json()["error"]["message"]


async def test_a_negative_id_is_refused_by_its_field(tokens: Tokens) -> None:
    reply = await tokens.engine.post("/detokenize", json={"tokens": [-1]})

    assert reply.status_code == 400
    assert "tokens" in reply.json()["error"]["param"]


# --- conversations that keep their ids ------------------------------------------------------------


@dataclass(frozen=True)
class Talk:
    """A conversation whose second turn was made of other ids than its text is rendered into."""

    prompt: list[int]
    made: list[int]
    end: int
    messages: list[dict[str, Any]]

    @property
    def ids(self) -> list[int]:
        return [*self.prompt, *self.made, self.end]

    @property
    def with_ids(self) -> list[dict[str, Any]]:
        """As clients keep ids on messages."""
        made = {"prompt_token_ids": self.prompt, "generation_token_ids": [*self.made, self.end]}
        return [
            message | (made if message["role"] == "assistant" else {}) for message in self.messages
        ]


@pytest.fixture
async def talk(tokens: Tokens) -> Talk:
    prompt = await tokens.ids(messages=ASKED)
    made = await tokens.spelled(SAID["content"])
    (end,) = await tokens.ids(prompt=END)
    return Talk(prompt, made, end, [*ASKED, SAID, NEXT])


async def test_a_conversation_continues_with_the_ids_it_was_generated_with(
    tokens: Tokens, talk: Talk
) -> None:
    rendered = await tokens.ids(messages=talk.messages)

    kept = await tokens.fields(messages=talk.messages, required_prefix_token_ids=talk.ids)

    ids = kept["tokens"]
    assert ids != rendered
    assert ids[: len(talk.ids)] == talk.ids
    assert await tokens.text(ids) == await tokens.text(rendered)
    assert kept["max_model_len"] > 0


async def test_an_end_that_the_model_did_not_make_is_the_template_s(
    tokens: Tokens, talk: Talk
) -> None:
    whole = await tokens.ids(messages=talk.messages, required_prefix_token_ids=talk.ids)

    cut_off = await tokens.ids(messages=talk.messages, required_prefix_token_ids=talk.ids[:-1])

    assert cut_off == whole


async def test_ids_are_found_on_the_message_that_they_made(tokens: Tokens, talk: Talk) -> None:
    given = await tokens.ids(messages=talk.messages, required_prefix_token_ids=talk.ids)

    assert await tokens.ids(messages=talk.with_ids) == given


async def test_kept_ids_are_returned_by_name(tokens: Tokens, talk: Talk) -> None:
    fields = {"messages": talk.with_ids, "return_token_strs": True}

    reply_fields = await tokens.fields(**fields)

    assert len(reply_fields["token_strs"]) == reply_fields["count"]
    assert reply_fields["token_strs"][len(talk.prompt) :][: len(talk.made)] == list("threeĠfour")


async def test_nothing_required_is_nothing_changed(tokens: Tokens) -> None:
    plain = await tokens.ids(messages=ASKED)

    assert await tokens.ids(messages=ASKED, required_prefix_token_ids=[]) == plain


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"required_prefix_token_ids": "one"}, "required_prefix_token_ids"),
        ({"required_prefix_token_ids": [1, -2]}, "required_prefix_token_ids"),
        ({"required_prefix_token_ids": [True]}, "required_prefix_token_ids"),
        ({"required_prefix_token_ids": [1, 2**40]}, "required_prefix_token_ids"),
        (
            {
                "required_prefix_token_ids": [1, 2],
                "messages": [*ASKED, SAID],
                "add_generation_prompt": False,
                "continue_final_message": True,
            },
            "required_prefix_token_ids",
        ),
        (
            {"messages": [*ASKED, SAID | {"prompt_token_ids": [1]}]},
            "messages.1.generation_token_ids",
        ),
    ],
    ids=["text", "negative", "boolean", "no such id", "left open", "one half"],
)
async def test_ids_that_cannot_be_kept_are_refused_by_their_name(
    tokens: Tokens, talk: Talk, fields: dict[str, Any], named: str
) -> None:
    assert_refused(await tokens.reply(**{"messages": talk.messages} | fields), named)


# --- chat completions -----------------------------------------------------------------------------


async def chat(subject: Subject, **fields: Any) -> httpx.Response:
    body = {"model": subject.model_name, "max_tokens": 2, "temperature": 0} | fields
    return await subject.engine.post("/v1/chat/completions", json=body)


async def prompt_of(subject: Subject, **fields: Any) -> list[int]:
    """Return the ids that the engine computed a chat completion from."""
    reply = await chat(subject, return_token_ids=True, **fields)
    assert reply.status_code == 200, reply.text
    reply_fields = reply.json()
    assert (
        len(reply_fields["choices"][0]["token_ids"]) == reply_fields["usage"]["completion_tokens"]
    )
    ids = reply_fields["prompt_token_ids"]
    assert isinstance(ids, list)
    return ids


async def test_a_chat_is_computed_from_the_ids_that_tokenize_returns(
    subject: Subject, tokens: Tokens, talk: Talk
) -> None:
    kept = await tokens.ids(messages=talk.messages, required_prefix_token_ids=talk.ids)

    assert kept[: len(talk.ids)] == talk.ids
    assert kept == await prompt_of(
        subject, messages=talk.messages, required_prefix_token_ids=talk.ids
    )
    assert kept == await prompt_of(subject, messages=talk.with_ids)


async def test_what_a_chat_made_is_kept_by_the_next(subject: Subject, talk: Talk) -> None:
    """A client that sends back the returned ids sees its conversation grow, id by id."""
    earlier = (await chat(subject, messages=talk.with_ids, return_token_ids=True)).json()
    made = earlier["choices"][0]
    reply_fields = made["message"] | {
        "prompt_token_ids": earlier["prompt_token_ids"],
        "generation_token_ids": made["token_ids"],
    }

    grown = await prompt_of(subject, messages=[*talk.with_ids, reply_fields, NEXT])

    so_far = [*earlier["prompt_token_ids"], *made["token_ids"]]
    assert grown[: len(so_far)] == so_far
    assert len(grown) > len(so_far)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"required_prefix_token_ids": [1, 2**40]}, "required_prefix_token_ids"),
        ({"required_prefix_token_ids": [1], "tokens": [1, 2]}, "required_prefix_token_ids"),
        ({"messages": [*ASKED, SAID | {"generation_token_ids": [1]}]}, "messages.1"),
    ],
    ids=["no such id", "the whole prompt in ids", "one half"],
)
async def test_a_chat_whose_ids_cannot_be_kept_is_refused(
    subject: Subject, talk: Talk, fields: dict[str, Any], named: str
) -> None:
    reply = await chat(subject, **{"messages": talk.messages} | fields)

    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"].startswith(named)
