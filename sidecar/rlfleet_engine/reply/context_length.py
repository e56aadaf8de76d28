"""Adds "context length" to every 400 for a prompt that is too long.

Clients take a 400 with these words for the end of a conversation, and any other for an error.
Some routes of vLLM say "maximum model length" or "max_model_len" instead.
"""

import json

from rlfleet_engine.asgi import compact

_WORDS = b"context length"
_OTHER_WORDS = (b"maximum model length", b"max_model_len")
_ADDED = " That is the model's maximum context length."


def worded(body: bytes) -> bytes:
    """Add the words to the body of such a 400 that lacks them; return any other unchanged."""
    if _WORDS in body or not any(words in body for words in _OTHER_WORDS):
        return body
    try:
        parsed = json.loads(body)
        message = parsed["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return body
    if not isinstance(message, str):
        return body
    parsed["error"]["message"] = message + _ADDED
    return compact(parsed)
