"""Adds "context length" to every 400 for a prompt that is too long.

Clients take a 400 with these words for the end of a conversation, and any other for an error.
Some routes of vLLM say "maximum model length" or "max_model_len" instead. A `max_tokens` that no
prompt could leave room for is an error of the client's.
"""

from rlfleet_engine.asgi import compact
from rlfleet_engine.json_body import parsed

_WORDS = b"context length"
_OTHER_WORDS = (b"maximum model length", b"max_model_len")
_OF_NO_PROMPT = b"cannot be greater than max_model_len"
_ADDED = " That is the model's maximum context length."


def worded(body: bytes) -> bytes:
    """Add the words to the body of such a 400 that lacks them; return any other unchanged."""
    if _WORDS in body or _OF_NO_PROMPT in body or not any(map(body.__contains__, _OTHER_WORDS)):
        return body
    content = parsed(body) or {}
    match content:
        case {"error": {"message": str(message)} as error}:
            return compact(content | {"error": {**error, "message": message + _ADDED}})
    return body
