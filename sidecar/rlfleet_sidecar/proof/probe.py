"""What the sidecar asks of an engine whose weights it proves, and reads in the answer. Pure.

One fixed prompt of token ids is put to the engine: no tokenizer, no template. Back come
the log probability of each of its tokens given those before it, which move with any
weight that matters, and a few tokens that the engine goes on with greedily.
It names no model, for under the model's name an adapter may answer.
It must stay true that an answer which is not finite and complete is an error.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

_NO_LOGPROB = -9999.0
"""What vLLM writes in place of minus infinity."""
_DIGITS = 5


class BadAnswerError(Exception):
    """The engine answered the probe as no sound engine does."""


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """What an engine said to the probe."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Of the prompt's tokens after the first."""


def prompt(vocabulary: int, length: int, place: int = 0) -> tuple[int, ...]:
    """Make the fixed prompt; a shorter one is the beginning of a longer one.

    Special tokens lie at a vocabulary's ends. Places other than 0 are other prompts, for
    company.
    """
    low, high = vocabulary // 10, max(vocabulary // 2, 1)
    return tuple(low + _number(place, turn) % max(high - low, 1) for turn in range(length))


def _number(place: int, turn: int) -> int:
    return int.from_bytes(sha256(f"rlfleet {place} {turn}".encode()).digest()[:8], "big")


def request(prompts: Sequence[Sequence[int]], tokens: int, salt: str) -> dict[str, object]:
    """Make the body for /v1/completions: greedy, a fixed length, ids and logprobs wanted.

    Several prompts come into the engine at once and share its batches.
    """
    return {
        "prompt": [list(prompt) for prompt in prompts],
        "temperature": 0,
        "max_tokens": tokens,
        "min_tokens": tokens,
        "ignore_eos": True,
        "logprobs": 1,
        "prompt_logprobs": 0,
        "return_token_ids": True,
        "cache_salt": salt,
    }


def read(answer: object, prompts: Sequence[Sequence[int]], tokens: int) -> ProbeAnswer:
    """Take out what the engine said to the first prompt; raises if it is no proof of anything."""
    choice = _first_choice(answer, len(prompts))
    ids = choice.get("token_ids")
    logprobs = choice.get("logprobs")
    values = logprobs.get("token_logprobs") if isinstance(logprobs, Mapping) else None
    if not isinstance(ids, list) or not isinstance(values, list):
        raise BadAnswerError("the probe's answer has no token ids or no logprobs")
    if len(ids) != tokens or len(values) != tokens:
        raise BadAnswerError(f"the probe's answer has {len(ids)} tokens, not {tokens}")
    of_prompt = _of_prompt(choice.get("prompt_logprobs"), prompts[0])
    if not all(_is_sound(value) for value in (*values, *of_prompt)):
        raise BadAnswerError("the probe's answer has a logprob that is not finite")
    logprobs_told = tuple(round(float(str(value)), _DIGITS) for value in of_prompt)
    return ProbeAnswer(tuple(int(one) for one in ids), logprobs_told)


def _of_prompt(told: object, prompt: Sequence[int]) -> list[object]:
    """Take the log probability of each token of the prompt that has one before it."""
    if not isinstance(told, list) or len(told) != len(prompt):
        raise BadAnswerError("the probe's answer has no logprobs of its prompt")
    found: list[object] = []
    for token, entry in zip(prompt[1:], told[1:], strict=True):
        one = entry.get(str(token)) if isinstance(entry, Mapping) else None
        if not isinstance(one, Mapping):
            raise BadAnswerError("the probe's answer is about another prompt")
        found.append(one.get("logprob"))
    return found


def _first_choice(answer: object, count: int) -> Mapping[str, object]:
    choices = answer.get("choices") if isinstance(answer, Mapping) else None
    if isinstance(choices, list) and len(choices) == count and isinstance(choices[0], Mapping):
        return choices[0]
    raise BadAnswerError("the probe's answer is not one completion for each prompt")


def _is_sound(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value > _NO_LOGPROB


def spread(one: Sequence[float], other: Sequence[float]) -> float:
    """Tell by how much log probabilities differ at most, over the prompt that both were asked."""
    return max((abs(a - b) for a, b in zip(one, other, strict=False)), default=0.0)


def digest(tokens: Sequence[int]) -> str:
    """Digest the tokens of an answer."""
    return sha256(",".join(map(str, tokens)).encode()).hexdigest()[:32]
