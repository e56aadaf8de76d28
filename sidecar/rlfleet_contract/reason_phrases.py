"""Errors for clients that read neither code nor message of a problem. Pure.

Some print the status line alone (httpx's raise_for_status), some read ``error.message`` (clients
of OpenAI's API, SkyRL).
"""

from collections.abc import Mapping

PHRASE_LIMIT = 200
"""Of the status line; proxies allow some thousand bytes for all headers."""


def phrase_of(code: str, message: str) -> str:
    """Return the reason for a status line: printable ASCII on one line."""
    text = f"{code}: {message}"
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in text)[
        :PHRASE_LIMIT
    ].strip()


def error_of(code: str, message: str, status: int) -> Mapping[str, object]:
    """Return the ``error`` of a body, in the form of OpenAI's API."""
    return {"message": message, "type": code, "param": None, "code": status}
