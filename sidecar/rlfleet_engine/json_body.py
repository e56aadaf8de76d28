"""Parses JSON bodies of requests and reports invalid fields."""

import json
from collections.abc import Iterable
from typing import Any

from rlfleet_engine.asgi import Scope

_TYPE = b"content-type"
_JSON = b"application/json"
_PLAIN = (_TYPE, _JSON)
"""The header of nearly every client, found without a loop over all headers."""
_UTF_16 = b"\0"
_ESCAPED = rb"\u00"


class FieldError(ValueError):
    """A field of a request is invalid; the reply is 400 with this message."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field} {message}")
        self.field = field


def has_json(scope: Scope) -> bool:
    """Return whether a request's method and headers announce a JSON body."""
    if scope["method"] != "POST":
        return False
    headers = scope["headers"]
    return _PLAIN in headers or any(name == _TYPE and _is_json(one) for name, one in headers)


def may_name(body: bytes, names: Iterable[bytes]) -> bool:
    """Return whether a body may contain one of the names, plain, in UTF-16 or escaped."""
    for name in names:
        if name in body:
            return True
    return _UTF_16 in body or (b"\\" in body and _ESCAPED in body)


def parsed(body: bytes) -> dict[str, Any] | None:
    """Parse a body; None if it is no JSON object, which vLLM will reject."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def object_of(content: dict[str, Any], field: str, path: str | None = None) -> dict[str, Any]:
    """Return the object in a field, empty without one. Raises FieldError that names ``path``."""
    found = content.get(field)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise FieldError(path or field, f"must be an object, got {type(found).__name__}")
    return found


def _is_json(value: bytes) -> bool:
    return value.partition(b";")[0].strip().lower() == _JSON
