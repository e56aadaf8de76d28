"""Answers that the extension gives itself, without vLLM."""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]

_NOT_FOUND = b'{"detail":"Not Found"}'
"""Byte for byte what vLLM answers for a path that it does not know."""


async def answer(send: Send, status: int, body: bytes, more: Iterable[Header] = ()) -> None:
    """Send a whole reply."""
    headers = [
        (b"content-length", str(len(body)).encode()),
        (b"content-type", b"application/json"),
        *more,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def refuse(scope: Scope, send: Send) -> None:
    """Answer as if there were no such route."""
    if scope["type"] == "websocket":
        # What Starlette does for a websocket path that nobody knows.
        await send({"type": "websocket.close", "code": 1000, "reason": ""})
    else:
        await answer(send, 404, _NOT_FOUND)
