"""What vLLM 0.32 answers on its three routes of generation, in its own words.

Recorded from it: the names and their order, which of them are null, and what a stream
has in which event.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any, Protocol

from tests.fakes.experts import encoded
from tests.fakes.prefixes import refused, usage_of

_UNKNOWN = -9999.0
_RENDERED = 2
"""How many tokens the fake template puts around each message."""


@dataclass(frozen=True, slots=True)
class Said:
    """What was generated for one choice, or the part of it in one event."""

    index: int
    ids: list[int]
    finish: str | None
    spans: list[dict[str, Any]]
    logprob: float
    """Of each token; NaN of an engine that is broken."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, and what is known of it before a token is made."""

    body: dict[str, Any]
    prompt: Any
    cached: int
    has_experts: bool
    model: str


class Route(Protocol):
    """How one route words requests and replies."""

    def refusal(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """Return the error for a request that is invalid on this route alone."""

    def prompt(self, body: dict[str, Any]) -> Any:
        """Return the prompt; takes out of the body what vLLM takes out."""

    def sampling(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the part of the body with the sampling parameters."""

    def whole(self, asked: Asked, said: Sequence[Said]) -> dict[str, Any]:
        """Word a reply."""

    def first(self, asked: Asked, choices: int) -> Iterator[dict[str, Any]]:
        """Word the events of a stream before its first token."""

    def event(self, asked: Asked, said: Said, *, is_first: bool) -> dict[str, Any]:
        """Word an event."""


class Chat:
    """``/v1/chat/completions``."""

    def refusal(self, body: dict[str, Any]) -> dict[str, Any] | None:
        if "messages" in body:
            return None
        message = "1 validation error:\n  {'type': 'missing', 'loc': 'body.messages'}"
        return refused(message, "body.messages")

    def prompt(self, body: dict[str, Any]) -> Any:
        given = body.get("kv_transfer_params") or {}
        if given.get("prompt_token_ids") and not body.get("echo"):
            return given.pop("prompt_token_ids")
        texts = [str(message.get("content")) for message in body["messages"]]
        return [one for text in texts for one in (1, *text.encode(), _RENDERED)]

    def sampling(self, body: dict[str, Any]) -> dict[str, Any]:
        tokens = body.get("max_completion_tokens", body.get("max_tokens", 16))
        return body | {"max_tokens": tokens}

    def whole(self, asked: Asked, said: Sequence[Said]) -> dict[str, Any]:
        choices = [self._choice(asked, one) for one in said]
        made = sum(len(one.ids) for one in said)
        return {
            "id": "chatcmpl-fake",
            "object": "chat.completion",
            "model": asked.model,
            "choices": choices,
            "usage": usage_of(asked.prompt, made, asked.cached),
            "prompt_token_ids": asked.prompt if asked.body.get("return_token_ids") else None,
            "kv_transfer_params": None,
        }

    def _choice(self, asked: Asked, said: Said) -> dict[str, Any]:
        text = " ".join(map(str, said.ids))
        return {
            "index": said.index,
            "message": {"role": "assistant", "content": text},
            "logprobs": _chat_logprobs(asked.body, said),
            "finish_reason": said.finish,
            "stop_reason": None,
            "token_ids": said.ids if asked.body.get("return_token_ids") else None,
            "routed_experts": _experts(asked, said),
        }

    def first(self, asked: Asked, choices: int) -> Iterator[dict[str, Any]]:
        for index in range(choices):
            delta = {"role": "assistant", "content": ""}
            choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
            prompt = asked.prompt if asked.body.get("return_token_ids") else None
            yield _chunk([choice]) | {"prompt_token_ids": prompt}

    def event(self, asked: Asked, said: Said, *, is_first: bool) -> dict[str, Any]:
        del is_first
        ids = said.ids if asked.body.get("return_token_ids") else None
        choice = {
            "index": said.index,
            "delta": {"content": " ".join(map(str, said.ids))},
            "logprobs": _chat_logprobs(asked.body, said),
            "finish_reason": said.finish,
            "token_ids": ids,
        }
        return _chunk([choice])


class Generate:
    """``/inference/v1/generate``."""

    def refusal(self, body: dict[str, Any]) -> dict[str, Any] | None:
        del body
        return None

    def prompt(self, body: dict[str, Any]) -> Any:
        return body["token_ids"]

    def sampling(self, body: dict[str, Any]) -> dict[str, Any]:
        sampling: dict[str, Any] = body["sampling_params"]
        return sampling

    def whole(self, asked: Asked, said: Sequence[Said]) -> dict[str, Any]:
        made = sum(len(one.ids) for one in said)
        return {
            "request_id": "generate-tokens-fake",
            "model": asked.model,
            "usage": usage_of(asked.prompt, made, asked.cached),
            "prompt_token_ids": asked.prompt if asked.body.get("return_token_ids") else None,
            "mm_placeholders": None,
            "output_mode": "tokens",
            "choices": [self._choice(asked, one) for one in said],
        }

    def _choice(self, asked: Asked, said: Said) -> dict[str, Any]:
        logprobs = None
        if asked.body["sampling_params"].get("logprobs") is not None:
            logprobs = {"content": [_entry(token, said.logprob) for token in said.ids]}
        return {
            "index": said.index,
            "finish_reason": said.finish,
            "stop_reason": None,
            "token_ids": said.ids,
            "routed_experts": _experts(asked, said),
            "sampling_mask": None,
            "weight_versions": said.spans or None,
            "logprobs": logprobs,
        }

    def first(self, asked: Asked, choices: int) -> Iterator[dict[str, Any]]:
        del asked, choices
        yield from ()

    def event(self, asked: Asked, said: Said, *, is_first: bool) -> dict[str, Any]:
        told = {"request_id": "generate-tokens-fake", "usage": None, "output_mode": "tokens"}
        if is_first and asked.body.get("return_token_ids"):
            told["prompt_token_ids"] = asked.prompt
        return told | {"choices": [self._choice(asked, said)]}


class Completion:
    """``/v1/completions``; it returns more than vLLM does without a request for it."""

    def refusal(self, body: dict[str, Any]) -> dict[str, Any] | None:
        del body
        return None

    def prompt(self, body: dict[str, Any]) -> Any:
        return body.get("prompt")

    def sampling(self, body: dict[str, Any]) -> dict[str, Any]:
        return body

    def whole(self, asked: Asked, said: Sequence[Said]) -> dict[str, Any]:
        made = sum(len(one.ids) for one in said)
        return {
            "object": "text_completion",
            "model": asked.model,
            "choices": [self._choice(asked, one) for one in said],
            "usage": usage_of(asked.prompt, made, asked.cached),
        }

    def _choice(self, asked: Asked, said: Said) -> dict[str, Any]:
        ids = [f"token_id:{token}" for token in said.ids]
        is_ids = asked.body.get("return_tokens_as_token_ids")
        texts = ids if is_ids else [str(token) for token in said.ids]
        return {
            "index": said.index,
            "text": " ".join(texts),
            "finish_reason": said.finish,
            "token_ids": said.ids,
            "prompt_token_ids": asked.prompt if asked.body.get("return_token_ids") else None,
            "weight_versions": said.spans,
            "logprobs": {
                "token_logprobs": [_clamped(said.logprob)] * len(said.ids),
                "tokens": texts,
            },
        }

    def first(self, asked: Asked, choices: int) -> Iterator[dict[str, Any]]:
        del asked, choices
        yield from ()

    def event(self, asked: Asked, said: Said, *, is_first: bool) -> dict[str, Any]:
        choice = self._choice(asked, said)
        if isnan(said.logprob):
            # A stream is not clamped: vLLM's JSON says null there.
            choice["logprobs"]["token_logprobs"] = [None] * len(said.ids)
        # Each choice has the prompt once.
        told = choice["prompt_token_ids"] if is_first else None
        return {"object": "text_completion", "choices": [choice | {"prompt_token_ids": told}]}


def _chunk(choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": "chatcmpl-fake", "object": "chat.completion.chunk", "choices": choices}


def _chat_logprobs(body: dict[str, Any], said: Said) -> dict[str, Any] | None:
    if not body.get("logprobs"):
        return None
    is_ids = body.get("return_tokens_as_token_ids")
    content: list[dict[str, Any]] = [
        {
            "token": f"token_id:{token}" if is_ids else str(token),
            "logprob": _clamped(said.logprob),
            "bytes": None,
            "top_logprobs": [],
        }
        for token in said.ids
    ]
    return {"content": content}


def _entry(token: int, logprob: float) -> dict[str, Any]:
    told = {"token_id": token, "logprob": _clamped(logprob), "rank": 1}
    return told | {"top_logprobs": [told]}


def _clamped(logprob: float) -> float:
    return logprob if logprob == logprob else _UNKNOWN  # noqa: PLR0124 - NaN alone differs


def _experts(asked: Asked, said: Said) -> str | None:
    """Of each token that was computed: the last one that was made was not."""
    rows = len(asked.prompt) + len(said.ids) - 1
    return encoded(rows) if asked.has_experts and rows > 0 else None
