"""Rejects replies with missing log probabilities, because a trainer uses each of them.

vLLM returns -9999.0 for a token without one, and in a stream null for one that is not a number.
Both are valid for alternatives to the sampled token.
"""

import math
from dataclasses import dataclass
from typing import Any

from rlfleet_engine.json_body import may_name, parsed
from rlfleet_engine.rewrite.rewrite import (
    IncompleteReplyError,
    InnerCall,
    ReplyRewrite,
    RequestRewrite,
)

UNKNOWN = -9999.0
_MISSING = (str(UNKNOWN).encode(), b'"logprob":null', b"[null", b",null")
"""Their forms in vLLM's compact JSON; completions have log probabilities in a list."""
_ASKED = (b'"return_token_ids"', b'"return_tokens_as_token_ids"')
_ECHO = b'"echo"'
COMPLETIONS_PATH = "/v1/completions"


def is_finite(value: object) -> bool:
    """Return whether this is a valid log probability."""
    return isinstance(value, float | int) and math.isfinite(value) and value != UNKNOWN


def check(body: bytes, *, echoes: bool = False) -> None:
    """Raise IncompleteReplyError if a generated token has no finite log probability.

    With ``echoes`` the prompt's first token may have none.
    """
    if not any(form in body for form in _MISSING):
        return
    for choice in (parsed(body) or {}).get("choices") or []:
        for place, value in enumerate(_made(choice.get("logprobs") or {})):
            is_first = echoes and place == 0 and value is None
            if not is_first and not is_finite(value):
                raise IncompleteReplyError(
                    f"engine returned log probability {value} for token {place}, expected a number"
                )


def _made(logprobs: dict[str, Any]) -> list[object]:
    entries = logprobs.get("content") or []
    return [*(logprobs.get("token_logprobs") or []), *(entry.get("logprob") for entry in entries)]


@dataclass(frozen=True, slots=True)
class FiniteLogprobs(ReplyRewrite):
    """Passes a reply unchanged if each of its tokens has a log probability."""

    echoes: bool = False
    """Whether the reply includes its prompt."""

    def whole(self, body: bytes) -> bytes:
        """Check a complete reply or one event. Raises IncompleteReplyError."""
        check(body, echoes=self.echoes)
        return body


def watched(path: str, body: bytes) -> RequestRewrite | None:
    """Return the unchanged request with a check of its reply, if it may ask for token ids."""
    if not may_name(body, _ASKED):
        return None
    echoes = may_name(body, (_ECHO,)) and bool((parsed(body) or {}).get("echo"))
    return RequestRewrite(path, body, FiniteLogprobs(echoes))


async def turn_completion(body: bytes, _ask: InnerCall) -> RequestRewrite | None:
    """Check the reply of a completion."""
    return watched(COMPLETIONS_PATH, body)
