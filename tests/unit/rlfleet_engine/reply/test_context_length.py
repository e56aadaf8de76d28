"""A prompt that is too long gets the same words on every route."""

import json

import pytest

from rlfleet_engine.reply.context_length import worded

OTHERWISE = [
    "The decoder prompt (length 1100) is longer than the maximum model length of 1024.",
    "The prompt has 1100 tokens, which exceeds the max_model_len 1024.",
]


def error(message: object) -> bytes:
    told = {"message": message, "type": "BadRequestError", "param": "max_tokens", "code": 400}
    return json.dumps({"error": told}).encode()


@pytest.mark.parametrize("message", OTHERWISE)
def test_the_words_are_added_where_they_lack(message: str) -> None:
    before, after = (json.loads(body)["error"] for body in (error(message), worded(error(message))))

    assert "context length" in after["message"]
    assert after["message"].startswith(message)
    assert after | {"message": message} == before


@pytest.mark.parametrize(
    "body",
    [
        error("This model's maximum context length is 1024 tokens. (max_model_len)"),
        error("max_tokens must be at least 1, got 0."),
        error("max_tokens=2000 cannot be greater than max_model_len=1024. Please request fewer"),
        error(["max_model_len"]),
        b'{"error": "max_model_len"}',
        b'["max_model_len"]',
        b"max_model_len",
        b"",
    ],
)
def test_any_other_error_passes_byte_for_byte(body: bytes) -> None:
    assert worded(body) is body
