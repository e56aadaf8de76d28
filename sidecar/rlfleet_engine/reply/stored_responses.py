"""Rejects reads of stored responses, because the weights that made them are unknown.

vLLM can store responses (VLLM_ENABLE_RESPONSES_API_STORE). An earlier version may have made one,
or weights that failed their proof. A stored response must reach a client only as
``previous_response_id``, as a part of a prompt.
"""

from rlfleet_engine.asgi import Send, answer, error_of

_STORED = "/v1/responses/"
_OTHERS = frozenset(f"{_STORED}{name}" for name in ("compact", "input_tokens", "render"))
"""Routes of OpenAI's API that read no stored response; vLLM says itself which it has."""
_BAD_REQUEST = 400
_UNREADABLE = (
    "stored responses are not returned: the weights that made them are unknown;"
    " use the reply to the original request"
)


def is_stored(path: str) -> bool:
    """Return whether a path is that of a stored response."""
    return path.startswith(_STORED) and path not in _OTHERS


async def unreadable(send: Send) -> None:
    """Answer 400: stored responses are not returned."""
    await answer(send, _BAD_REQUEST, error_of(_BAD_REQUEST, "BadRequestError", _UNREADABLE))
