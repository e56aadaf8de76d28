"""What vLLM does by itself stays its own: asked past the extension, it answers the same.

The probe's header leads past everything, for a peer in the pod alone.
"""

import json
import re
from typing import Any

import pytest

from rlfleet_contract import paths
from tests.contract.subject import Subject

TOKENS = [11, 12, 13]
CHAT, COMPLETIONS, GENERATE = (
    "/v1/chat/completions",
    "/v1/completions",
    "/inference/v1/generate",
)
MESSAGES = [{"role": "user", "content": "one two"}]
IDS = {"return_token_ids": True, "return_tokens_as_token_ids": True}
PASSING = re.compile(rb'"(id|request_id|created)":("[^"]*"|[0-9]+),')
"""What differs between two replies to one request."""


def chat(**fields: Any) -> dict[str, Any]:
    return {"messages": MESSAGES, "max_tokens": 3, "temperature": 0} | fields


def completion(**fields: Any) -> dict[str, Any]:
    return {"prompt": TOKENS, "max_tokens": 3, "temperature": 0} | fields


def generated(**fields: Any) -> dict[str, Any]:
    sampling = {"max_tokens": 3, "temperature": 0, "logprobs": 1}
    return {"token_ids": TOKENS, "sampling_params": sampling} | fields


async def both(subject: Subject, path: str, body: dict[str, Any]) -> tuple[bytes, bytes]:
    """Return what is answered, and what vLLM alone answers."""
    await subject.serve(subject.versions.first)
    replies = []
    for headers in ({}, {paths.PROBE_HEADER: "1"}):
        sent = {"model": subject.model_name} | body
        reply = await subject.engine.post(path, json=sent, headers=headers)
        assert reply.status_code == 200, reply.text
        assert (paths.VERSION_HEADER in reply.headers) is not bool(headers)
        replies.append(PASSING.sub(b"", reply.content))
    ours, plain = replies
    return ours, plain


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, chat()),
        (CHAT, chat(logprobs=True, top_logprobs=1)),
        (CHAT, chat(logprobs=True, **IDS)),
        (CHAT, chat(logprobs=True, stream=True, **IDS)),
        (COMPLETIONS, completion(logprobs=1, **IDS)),
        (COMPLETIONS, completion(logprobs=1, stream=True, **IDS)),
        (GENERATE, generated(sampling_params={"max_tokens": 3, "temperature": 0})),
    ],
)
async def test_what_vllm_does_itself_is_answered_byte_for_byte(
    subject: Subject, path: str, body: dict[str, Any]
) -> None:
    ours, plain = await both(subject, path, body)

    assert ours == plain


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "stream"])
async def test_generate_adds_names_and_nothing_else(subject: Subject, *, is_streamed: bool) -> None:
    ours, plain = await both(subject, GENERATE, generated(stream=is_streamed))

    assert ours != plain
    assert re.sub(rb'"token":"token_id:\d+",', b"", ours) == plain


async def test_nvext_adds_itself_and_ids_and_nothing_else(subject: Subject) -> None:
    nvext = {"extra_fields": ["completion_token_ids"]}

    ours, plain = map(json.loads, await both(subject, CHAT, chat(nvext=nvext)))

    assert ours.pop("nvext") == {"completion_token_ids": ours["choices"][0]["token_ids"]}
    assert (plain["prompt_token_ids"], plain["choices"][0]["token_ids"]) == (None, None)
    assert ours["prompt_token_ids"]
    ours["prompt_token_ids"] = ours["choices"][0]["token_ids"] = None
    assert ours == plain
