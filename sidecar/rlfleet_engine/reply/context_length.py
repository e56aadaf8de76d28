"""One word for one thing: a prompt that is too long is told with "context length".

Clients take a 400 with these words for the end of a conversation and any other for an
error. vLLM says so on most routes and "maximum model length" or "max_model_len" on others.
"""

import json

from rlfleet_engine.asgi import compact

_WORDS = b"context length"
_OTHER_WORDS = (b"maximum model length", b"max_model_len")
_TOLD = " That is the model's maximum context length."


def worded(body: bytes) -> bytes:
    """Add the words to a 400 that is about it and lacks them; any other is returned itself."""
    if _WORDS in body or not any(words in body for words in _OTHER_WORDS):
        return body
    try:
        parsed = json.loads(body)
        message = parsed["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return body
    if not isinstance(message, str):
        return body
    parsed["error"]["message"] = message + _TOLD
    return compact(parsed)
