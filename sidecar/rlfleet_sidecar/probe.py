"""What an engine is asked to prove its weights, and how its answers are read. Pure.

The prompts depend on the vocabulary's size alone, so equal workers answer equally. It
must stay true that no answer comes out of a cache: each pass has its own cache salt.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

_PROMPT_TOKENS = 8
_NO_LOGPROB = -9999.0
"""What vLLM writes in place of minus infinity."""


class BadAnswerError(Exception):
    """The engine answered the probe as no sound engine does."""


def prompts(vocabulary: int, count: int) -> tuple[tuple[int, ...], ...]:
    """Make the fixed prompts of token ids; special tokens lie at a vocabulary's ends."""
    low, high = vocabulary // 10, max(vocabulary // 2, 1)
    return tuple(
        tuple(low + _number(place, turn) % max(high - low, 1) for turn in range(_PROMPT_TOKENS))
        for place in range(count)
    )


def _number(place: int, turn: int) -> int:
    return int.from_bytes(sha256(f"rlfleet {place} {turn}".encode()).digest()[:8], "big")


def request(model: str, prompt: Sequence[int], tokens: int, salt: str) -> dict[str, object]:
    """Make the body for /v1/completions: greedy, a fixed length, ids and logprobs wanted."""
    return {
        "model": model,
        "prompt": list(prompt),
        "temperature": 0,
        "max_tokens": tokens,
        "min_tokens": tokens,
        "ignore_eos": True,
        "logprobs": 1,
        "return_token_ids": True,
        "cache_salt": salt,
    }


def read(answer: object, tokens: int) -> tuple[int, ...]:
    """Take the token ids out of an answer; raises if it is no proof of anything."""
    choice = _first_choice(answer)
    ids = choice.get("token_ids")
    logprobs = choice.get("logprobs")
    values = logprobs.get("token_logprobs") if isinstance(logprobs, Mapping) else None
    if not isinstance(ids, list) or not isinstance(values, list):
        raise BadAnswerError("the probe's answer has no token ids or no logprobs")
    if len(ids) != tokens or len(values) != tokens:
        raise BadAnswerError(f"the probe's answer has {len(ids)} tokens, not {tokens}")
    if not all(_is_sound(value) for value in values):
        raise BadAnswerError("the probe's answer has a logprob that is not finite")
    return tuple(int(one) for one in ids)


def _first_choice(answer: object) -> Mapping[str, object]:
    choices = answer.get("choices") if isinstance(answer, Mapping) else None
    if isinstance(choices, list) and len(choices) == 1 and isinstance(choices[0], Mapping):
        return choices[0]
    raise BadAnswerError("the probe's answer is not one completion")


def _is_sound(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value > _NO_LOGPROB


def digest(answers: Iterable[Sequence[int]]) -> str:
    """Digest the answers to all prompts."""
    told = "|".join(",".join(str(token) for token in answer) for answer in answers)
    return sha256(told.encode()).hexdigest()[:32]
