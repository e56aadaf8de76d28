"""What the probe asks and which answers prove something."""

from typing import Any

import pytest

from rlfleet_contract.worker.proof import MAX_LOGPROBS
from rlfleet_sidecar.proof import probe

PROMPT = (7, 8, 9)


def answer(
    *values: object, of_prompt: tuple[object, ...] = (-3.0, -4.5), prompt: tuple[int, ...] = PROMPT
) -> dict[str, Any]:
    told = [{str(t): {"logprob": v}} for t, v in zip(prompt[1:], of_prompt, strict=True)]
    choice = {
        "index": 0,
        "token_ids": [1, 2],
        "logprobs": {"token_logprobs": list(values)},
        "prompt_logprobs": [None, *told],
    }
    return {"choices": [choice]}


GOOD = answer(-0.1, -2.5)
CHOICE = GOOD["choices"][0]
BAD_SECOND = answer(-0.1, float("nan"))["choices"][0] | {"index": 1}
BAD: dict[str, object] = {
    "nothing": {},
    "a list": [],
    "no choice": {"choices": []},
    "two choices": {"choices": GOOD["choices"] * 2},
    "another prompt's choice": {"choices": [CHOICE | {"index": 1}]},
    "no ids": {"choices": [{key: v for key, v in CHOICE.items() if key != "token_ids"}]},
    "no logprobs": {"choices": [CHOICE | {"logprobs": None}]},
    "too few": {"choices": [CHOICE | {"token_ids": [1], "logprobs": {"token_logprobs": [-0.1]}}]},
    "not a number": answer(-0.1, float("nan")),
    "infinite": answer(float("-inf"), -0.1),
    "clamped": answer(-9999.0, -0.1),
    "none": answer(None, -0.1),
    "nothing of the prompt": {"choices": [CHOICE | {"prompt_logprobs": None}]},
    "too little of the prompt": {"choices": [CHOICE | {"prompt_logprobs": [None, {}]}]},
    "not a number in the prompt": answer(-0.1, -2.5, of_prompt=(-3.0, float("nan"))),
    "clamped in the prompt": answer(-0.1, -2.5, of_prompt=(-9999.0, -3.0)),
    "another prompt": answer(-0.1, -2.5, prompt=(7, 8, 10)),
}


def test_a_sound_answer_gives_its_tokens_and_what_the_prompt_was_worth() -> None:
    assert probe.read(GOOD, [PROMPT], 2) == (probe.ProbeAnswer((1, 2), (-3.0, -4.5)),)


def test_in_company_the_first_answer_counts_and_none_may_be_missing() -> None:
    both = {"choices": [CHOICE | {"index": 1, "token_ids": [3, 4]}, CHOICE]}

    (first,) = probe.read(both, [PROMPT, PROMPT], 2)

    assert first.tokens == (1, 2)
    with pytest.raises(probe.BadAnswerError):
        probe.read(GOOD, [PROMPT, PROMPT], 2)


def test_of_two_prompts_in_one_request_each_has_an_answer_of_its_own() -> None:
    both = {"choices": [CHOICE, CHOICE | {"index": 1, "token_ids": [3, 4]}]}

    assert [one.tokens for one in probe.read(both, [PROMPT, PROMPT], 2, 2)] == [(1, 2), (3, 4)]


@pytest.mark.parametrize("second", [BAD_SECOND, CHOICE], ids=["not finite", "the first again"])
def test_a_second_answer_that_is_none_proves_nothing(second: dict[str, Any]) -> None:
    with pytest.raises(probe.BadAnswerError):
        probe.read({"choices": [CHOICE, second]}, [PROMPT, PROMPT], 2, 2)


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_any_other_answer_proves_nothing(bad: object) -> None:
    with pytest.raises(probe.BadAnswerError):
        probe.read(bad, [PROMPT], 2)


@pytest.mark.parametrize("vocabulary", [1, 2, 30, 512, 151_936])
def test_the_prompt_is_fixed_and_within_the_vocabulary(vocabulary: int) -> None:
    prompt = probe.prompt(vocabulary, MAX_LOGPROBS)

    assert prompt == probe.prompt(vocabulary, MAX_LOGPROBS)
    assert all(0 <= token < vocabulary for token in prompt)


def test_a_shorter_prompt_is_the_beginning_of_a_longer_one_and_company_is_another() -> None:
    assert probe.prompt(512, 64)[:8] == probe.prompt(512, 8) != probe.prompt(512, 8, place=1)


def test_the_spread_is_over_what_both_were_asked() -> None:
    assert probe.spread((-1.0, -2.0, -9.0), (-1.25, -1.5)) == 0.5
    assert probe.spread((), (-1.0,)) == 0


def test_different_tokens_have_different_digests() -> None:
    answers = [[1, 2, 3], [12, 3], [1, 23], [1, 2, 4], []]
    assert len({probe.digest(one) for one in answers}) == len(answers)


def test_the_probe_names_no_model_for_an_adapter_may_have_the_model_s_name() -> None:
    assert "model" not in probe.request([PROMPT], tokens=2, salt="s")
