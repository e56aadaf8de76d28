"""Log probabilities that say something: a sampler trains on each of them.

vLLM tells -9999.0 of a token of which it has none, in a stream null of one that is not a
number. Of tokens that could have been sampled and were not, both are in order.
"""

import math
from dataclasses import dataclass
from typing import Any

from rlfleet_engine.json_body import may_name, parsed
from rlfleet_engine.rewrite.rewrite import Ask, IncompleteReplyError, Turned

UNKNOWN = -9999.0
_TOLD = (str(UNKNOWN).encode(), b'"logprob":null', b"[null", b",null")
"""What any of them looks like in vLLM's compact JSON; a null of a completion stands in a list."""
_ASKED = (b'"return_token_ids"', b'"return_tokens_as_token_ids"')
_ECHO = b'"echo"'
COMPLETIONS_PATH = "/v1/completions"


def is_finite(value: object) -> bool:
    """Tell whether this is a log probability that says something."""
    return isinstance(value, float | int) and math.isfinite(value) and value != UNKNOWN


def check(body: bytes, *, echoes: bool = False) -> None:
    """Raise IncompleteReplyError if a token that was made has no finite log probability.

    A completion that echoes its prompt rightly has none of the prompt's first token.
    """
    if not any(told in body for told in _TOLD):
        return
    for choice in (parsed(body) or {}).get("choices") or []:
        for place, value in enumerate(_made(choice.get("logprobs") or {})):
            is_first = echoes and place == 0 and value is None
            if not is_first and not is_finite(value):
                raise IncompleteReplyError(
                    f"the engine has no finite log probability of token {place}"
                )


def _made(logprobs: dict[str, Any]) -> list[object]:
    entries = logprobs.get("content") or []
    return [*(logprobs.get("token_logprobs") or []), *(entry.get("logprob") for entry in entries)]


@dataclass(frozen=True, slots=True)
class FiniteBack:
    """Lets a reply pass as it is, if each of its tokens has a log probability."""

    echoes: bool = False
    """Whether it begins with its prompt."""

    def whole(self, body: bytes) -> bytes:
        """Look whether anything is missing. Raises IncompleteReplyError."""
        check(body, echoes=self.echoes)
        return body

    def event(self, data: bytes) -> bytes:
        """Do the same to one event."""
        return self.whole(data)

    def refusal(self, body: bytes) -> bytes:
        """Leave it as it is."""
        return body


def watched(path: str, body: bytes) -> Turned | None:
    """Leave a request as it is and watch its reply, if token ids may have been asked for."""
    if not may_name(body, _ASKED):
        return None
    echoes = may_name(body, (_ECHO,)) and bool((parsed(body) or {}).get("echo"))
    return Turned(path, body, FiniteBack(echoes))


async def turn_completion(body: bytes, _ask: Ask) -> Turned | None:
    """Watch the reply of a completion."""
    return watched(COMPLETIONS_PATH, body)
