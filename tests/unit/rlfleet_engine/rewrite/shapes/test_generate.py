"""Log probabilities of /inference/v1/generate have one form, whichever release made them."""

import json

import pytest

from rlfleet_engine.rewrite.shapes.generate import GenerateReply

IN_INTEGERS = b'{"token_id":7,"logprob":-0.5,"top_logprobs":[{"token_id":9,"logprob":-1.5}]}'
"""As vLLM 0.32 has it."""
BY_NAME = (
    b'{"token":"token_id:7","logprob":-0.5,"bytes":null,'
    b'"top_logprobs":[{"token":"token_id:9","logprob":-1.5,"bytes":null}]}'
)
"""As 0.29 to 0.31 have it."""


@pytest.mark.parametrize("entry", [IN_INTEGERS, BY_NAME], ids=["0.32", "0.31"])
def test_a_token_has_its_name_and_its_number(entry: bytes) -> None:
    body = b'{"choices":[{"logprobs":{"content":[' + entry + b"]}}]}"

    told = json.loads(GenerateReply(b"{}").whole(body))

    (one,) = told["choices"][0]["logprobs"]["content"]
    for found, token, value in ((one, 7, -0.5), (one["top_logprobs"][0], 9, -1.5)):
        shown = {name: found[name] for name in ("token", "token_id", "logprob")}
        assert shown == {"token": f"token_id:{token}", "token_id": token, "logprob": value}


def test_an_entry_that_has_both_stays_as_it_is() -> None:
    body = b'{"token":"token_id:7","token_id":7,"logprob":-0.5}'

    assert GenerateReply(b"{}").whole(body) == body
