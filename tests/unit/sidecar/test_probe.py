"""What the probe asks and which answers prove something."""

from typing import Any

import pytest

from rlfleet_sidecar import probe

GOOD: dict[str, Any] = {
    "choices": [{"token_ids": [1, 2], "logprobs": {"token_logprobs": [-0.1, -2.5]}}]
}


def with_logprobs(*values: object) -> dict[str, Any]:
    return {"choices": [{"token_ids": [1, 2], "logprobs": {"token_logprobs": list(values)}}]}


BAD: dict[str, object] = {
    "nothing": {},
    "a list": [],
    "no choice": {"choices": []},
    "two choices": {"choices": GOOD["choices"] * 2},
    "no ids": {"choices": [{"logprobs": {"token_logprobs": [-0.1, -2.5]}}]},
    "no logprobs": {"choices": [{"token_ids": [1, 2], "logprobs": None}]},
    "too few": {"choices": [{"token_ids": [1], "logprobs": {"token_logprobs": [-0.1]}}]},
    "not a number": with_logprobs(-0.1, float("nan")),
    "infinite": with_logprobs(float("-inf"), -0.1),
    "clamped": with_logprobs(-9999.0, -0.1),
    "none": with_logprobs(None, -0.1),
}


def test_a_sound_answer_gives_its_tokens() -> None:
    assert probe.read(GOOD, 2) == (1, 2)


@pytest.mark.parametrize("answer", BAD.values(), ids=BAD)
def test_any_other_answer_proves_nothing(answer: object) -> None:
    with pytest.raises(probe.BadAnswerError):
        probe.read(answer, 2)


@pytest.mark.parametrize("vocabulary", [1, 2, 30, 512, 151_936])
def test_prompts_are_fixed_and_within_the_vocabulary(vocabulary: int) -> None:
    prompts = probe.prompts(vocabulary, 3)

    assert prompts == probe.prompts(vocabulary, 3)
    assert all(0 <= token < vocabulary for prompt in prompts for token in prompt)


def test_prompts_differ() -> None:
    assert len(set(probe.prompts(512, 3))) == 3


def test_a_digest_tells_answers_apart() -> None:
    answers = [[[1, 2], [3]], [[1], [2, 3]], [[12], [3]], [[1, 2], [4]]]
    assert len({probe.digest(answer) for answer in answers}) == len(answers)
