"""The request and the answer of the probe that proves an engine's weights. Pure.

The probe is one fixed prompt of token ids, without tokenizer or template. The answer contains
the log probability of each of its tokens, which depends on every weight that matters, and a
few tokens of greedy completion. The request names no model, because an adapter may have the
model's name. It must stay true that an answer which is not finite and complete is an error.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

_NO_LOGPROB = -9999.0
"""vLLM's replacement for minus infinity."""
_DIGITS = 5


class BadAnswerError(Exception):
    """The engine's answer to the probe is incomplete or not finite."""


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """An engine's answer to the probe."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Of the prompt's tokens, without the first."""


def prompt(vocabulary: int, length: int, place: int = 0) -> tuple[int, ...]:
    """Return the fixed prompt; a shorter one is the beginning of a longer one.

    It avoids a vocabulary's ends, where special tokens are. Other places than 0 give other
    prompts, for a batch.
    """
    low, high = vocabulary // 10, max(vocabulary // 2, 1)
    return tuple(low + _number(place, turn) % max(high - low, 1) for turn in range(length))


def _number(place: int, turn: int) -> int:
    return int.from_bytes(sha256(f"rlfleet {place} {turn}".encode()).digest()[:8], "big")


def request(prompts: Sequence[Sequence[int]], tokens: int, salt: str) -> dict[str, object]:
    """Return the body for /v1/completions: greedy, fixed length, with ids and logprobs.

    Several prompts in one request share the engine's batches.
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


def read(
    answer: object, prompts: Sequence[Sequence[int]], tokens: int, wanted: int = 1
) -> tuple[ProbeAnswer, ...]:
    """Return the answers to the first prompts; raises BadAnswerError if one is not complete."""
    choices = _choices(answer, len(prompts))
    return tuple(_read(choices[place], prompts[place], tokens) for place in range(wanted))


def _read(choice: Mapping[str, object], prompt: Sequence[int], tokens: int) -> ProbeAnswer:
    ids = choice.get("token_ids")
    logprobs = choice.get("logprobs")
    values = logprobs.get("token_logprobs") if isinstance(logprobs, Mapping) else None
    if not isinstance(ids, list) or not isinstance(values, list):
        raise BadAnswerError("the probe's answer lacks token ids or logprobs")
    if len(ids) != tokens or len(values) != tokens:
        raise BadAnswerError(f"the probe's answer has {len(ids)} tokens (expected {tokens})")
    of_prompt = _of_prompt(choice.get("prompt_logprobs"), prompt)
    if not all(_is_sound(value) for value in (*values, *of_prompt)):
        raise BadAnswerError("the probe's answer has a logprob that is not finite")
    rounded = tuple(round(float(str(value)), _DIGITS) for value in of_prompt)
    return ProbeAnswer(tuple(int(one) for one in ids), rounded)


def _of_prompt(entries: object, prompt: Sequence[int]) -> list[object]:
    """Return the log probability of each token of the prompt after the first."""
    if not isinstance(entries, list) or len(entries) != len(prompt):
        raise BadAnswerError("the probe's answer lacks logprobs of its prompt")
    found: list[object] = []
    for token, entry in zip(prompt[1:], entries[1:], strict=True):
        one = entry.get(str(token)) if isinstance(entry, Mapping) else None
        if not isinstance(one, Mapping):
            raise BadAnswerError("the probe's answer belongs to another prompt")
        found.append(one.get("logprob"))
    return found


def _choices(answer: object, count: int) -> Sequence[Mapping[str, object]]:
    """Return a choice for each prompt, in their order."""
    choices = answer.get("choices") if isinstance(answer, Mapping) else None
    if isinstance(choices, list) and len(choices) == count:
        placed = {one.get("index"): one for one in choices if isinstance(one, Mapping)}
        if placed.keys() == set(range(count)):
            return [placed[place] for place in range(count)]
    raise BadAnswerError(f"the probe's answer does not have {count} completions")


def _is_sound(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value > _NO_LOGPROB


def spread(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the largest difference of log probabilities, over the shorter of the prompts."""
    return max((abs(a - b) for a, b in zip(one, other, strict=False)), default=0.0)


def digest(tokens: Sequence[int]) -> str:
    """Return a digest of an answer's tokens."""
    return sha256(",".join(map(str, tokens)).encode()).hexdigest()[:32]
