"""Stored responses are not returned: the weights that made them are not known.

vLLM can store responses (VLLM_ENABLE_RESPONSES_API_STORE). What is read from the store was
made by weights that are not known then: perhaps by an earlier version, perhaps by weights that
failed their proof. It must stay true that a stored response reaches a client only as
``previous_response_id``, which is part of a prompt.
"""

from rlfleet_engine.asgi import Send, answer, compact, error_of

_STORED = "/v1/responses/"
_RENDER = f"{_STORED}render"
_BAD_REQUEST = 400
_UNREADABLE = (
    "stored responses are not returned, because the weights that made them are not known any"
    " more: take the response from the reply to its own request"
)


def is_stored(path: str) -> bool:
    """Tell whether a path is that of a stored response."""
    return path.startswith(_STORED) and path != _RENDER


async def unreadable(send: Send) -> None:
    """Answer that stored responses are not returned."""
    content = error_of(_BAD_REQUEST, "BadRequestError", _UNREADABLE, None)
    await answer(send, _BAD_REQUEST, compact(content))
