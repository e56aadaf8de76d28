"""/v1/responses: nothing that is computed outside of the request that returns it.

vLLM can store responses (VLLM_ENABLE_RESPONSES_API_STORE), and with ``background`` it goes
on computing one after its request was answered. What is read from the store later was made
by weights that are not known then: perhaps by an earlier version, perhaps by weights that
failed their proof. It must stay true that a stored response reaches a client only as
``previous_response_id``, which is part of a prompt.
"""

from rlfleet_engine.asgi import Send, answer, compact, error_of
from rlfleet_engine.json_body import FieldError, parsed
from rlfleet_engine.rewrite.rewrite import Ask

PATH = "/v1/responses"
_BAD_REQUEST = 400
_STORED = f"{PATH}/"
_RENDER = f"{PATH}/render"
_UNREADABLE = (
    "stored responses are not returned, because the weights that made them are not known any"
    " more: take the response from the reply to its own request"
)


async def turn(body: bytes, _ask: Ask) -> None:
    """Refuse a response in the background. Raises FieldError."""
    if (parsed(body) or {}).get("background") not in (None, False):
        raise FieldError(
            "background",
            "must be false: a change of weights would go unnoticed between the request and the"
            " look at its response; leave it out, and set stream to read the response as it comes",
        )


def is_stored(path: str) -> bool:
    """Tell whether a path is that of a stored response."""
    return path.startswith(_STORED) and path != _RENDER


async def unreadable(send: Send) -> None:
    """Answer that stored responses are not returned."""
    content = error_of(_BAD_REQUEST, "BadRequestError", _UNREADABLE, None)
    await answer(send, _BAD_REQUEST, compact(content))
