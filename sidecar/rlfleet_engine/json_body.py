"""Looks into the bodies of requests, and says what is wrong with a field of them."""

import json
from collections.abc import Iterable
from typing import Any

from rlfleet_engine.asgi import Scope

_TYPE = b"content-type"
_JSON = b"application/json"
_PLAIN = (_TYPE, _JSON)
"""As nearly every client has it; found without a call for each header."""
_UTF_16 = b"\0"
_ESCAPED = rb"\u00"


class FieldError(ValueError):
    """A field of a request that cannot be taken as it is; the client's fault."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field} {message}")
        self.field = field


def has_json(scope: Scope) -> bool:
    """Tell by its head whether a request brings JSON."""
    if scope["method"] != "POST":
        return False
    headers = scope["headers"]
    return _PLAIN in headers or any(name == _TYPE and _is_json(one) for name, one in headers)


def may_name(body: bytes, names: Iterable[bytes]) -> bool:
    """Look for names in plain words, in UTF-16 or escaped; a single byte is found fast."""
    for name in names:
        if name in body:
            return True
    return _UTF_16 in body or (b"\\" in body and _ESCAPED in body)


def parsed(body: bytes) -> dict[str, Any] | None:
    """Parse a body; None if it is no JSON object, which is vLLM's to refuse."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def object_of(content: dict[str, Any], field: str, told: str | None = None) -> dict[str, Any]:
    """Return the object in a field, empty if there is none. Raises FieldError."""
    found = content.get(field)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise FieldError(told or field, "must be an object")
    return found


def _is_json(value: bytes) -> bool:
    return value.partition(b";")[0].strip().lower() == _JSON
