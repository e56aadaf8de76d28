"""A prefix cache, and what vLLM refuses before it computes anything.

Blocks of a prompt are found again under the same salt, the last token never: a token has
to be computed to continue from.
"""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from tests.fakes.adapters import LoRARequest

BLOCK = 16
MAX_MODEL_LEN = 1024
"""As the engines of the end-to-end tests have it."""
_SALT_CHARACTERS = 128


class Prefixes:
    """Which blocks of which prompts were computed, under which salt."""

    def __init__(self) -> None:
        self._blocks: set[tuple[str | None, tuple[int, ...]]] = set()

    def clear(self) -> None:
        """Forget all."""
        self._blocks.clear()

    def take(self, prompt: Sequence[int], salt: str | None) -> int:
        """Count the tokens of the prompt that need no computing, and remember its blocks."""
        whole = [(salt, tuple(prompt[:end])) for end in range(BLOCK, len(prompt) + 1, BLOCK)]
        known = takewhile(self._blocks.__contains__, whole)
        hits = max((len(tokens) for _, tokens in known if len(tokens) < len(prompt)), default=0)
        self._blocks.update(whole)
        return hits


def usage_of(prompt: object, made: int, cached: int) -> dict[str, Any]:
    """Return the field that vLLM adds with --enable-prompt-tokens-details."""
    asked = len(prompt) if isinstance(prompt, list | str) else 0
    return {
        "prompt_tokens": asked,
        "completion_tokens": made,
        "total_tokens": asked + made,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def refusal(body: dict[str, Any], vocabulary: int) -> dict[str, Any] | None:
    """Return vLLM's error for an invalid request, or None."""
    salt = body.get("cache_salt")
    tokens = body.get("sampling_params", body).get("max_tokens", 16)
    prompt = body.get("token_ids", body.get("prompt"))
    if salt is not None and (not isinstance(salt, str) or not 0 < len(salt) <= _SALT_CHARACTERS):
        message = "Parameter 'cache_salt' must be a non-empty string if provided."
        return refused(message, "cache_salt")
    if not isinstance(tokens, int):
        message = "1 validation error:\n  {'type': 'int_parsing', 'loc': 'body.max_tokens'}"
        return refused(message, "body.max_tokens")
    if isinstance(prompt, list) and "prompt" in body and len(prompt) > MAX_MODEL_LEN:
        return _over_context(len(prompt))
    return _refused_ids((body.get("kv_transfer_params") or {}).get("prompt_token_ids"), vocabulary)


def _refused_ids(ids: list[int] | None, vocabulary: int) -> dict[str, Any] | None:
    """Do as vLLM does with the ids that the first of two engines hands on."""
    name = "kv_transfer_params.prompt_token_ids"
    unknown = [token for token in ids or [] if token >= vocabulary]
    if unknown:
        message = f"Token id {unknown[0]} is out of vocabulary (parameter={name})"
        return refused(message, name)
    return None if ids is None or len(ids) <= MAX_MODEL_LEN else _over_context(len(ids))


def _over_context(length: int) -> dict[str, Any]:
    return refused(
        f"Input length ({length}) exceeds model's maximum context length ({MAX_MODEL_LEN}).", None
    )


def late_refusal(body: dict[str, Any]) -> dict[str, Any] | None:
    """Return vLLM's error for a request that its engine rejects on /inference/v1/generate.

    It does when the first token is asked for: a stream has begun by then.
    """
    asked = len(body.get("token_ids", ()))
    prompt = f"The decoder prompt (length {asked})"
    if asked > MAX_MODEL_LEN:
        return refused(
            f"{prompt} is longer than the maximum model length of {MAX_MODEL_LEN}. Make sure that"
            " `max_model_len` is no smaller than the number of text tokens.",
            None,
        )
    if asked == MAX_MODEL_LEN:
        return refused(
            f"{prompt} plus the number of requested output tokens (at least 1) is longer than the"
            f" maximum model length of {MAX_MODEL_LEN}. Make sure that `max_model_len` is no"
            " smaller than the number of text tokens (prompt + requested output tokens).",
            None,
        )
    return None


def refused(message: str, param: str | None) -> dict[str, Any]:
    """Word an error as vLLM does."""
    told = {"message": message, "type": "BadRequestError", "param": param, "code": 400}
    return {"error": told}


def salt_of(body: dict[str, Any], adapter: LoRARequest | None) -> str | None:
    """Make one of all that vLLM's prefix cache keeps apart."""
    salt: str | None = body.get("cache_salt")
    return salt if adapter is None else f"{salt}/{adapter.lora_name}/{adapter.lora_path}"
