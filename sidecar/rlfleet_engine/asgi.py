"""Answers that the extension gives itself, without vLLM.

Compact JSON with a Content-Length: some clients read nothing else.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]

LENGTH = b"content-length"
EVENT_STREAM = b"text/event-stream"
_NOT_FOUND = b'{"detail":"Not Found"}'
"""Byte for byte what vLLM answers for a path that it does not know."""
_DENIAL = "websocket.http.response"
_NO_WEBSOCKET = (
    "websockets are not served, because one connection outlives a change of weights:"
    " send each recording as a request to /v1/audio/transcriptions"
)


async def answer(send: Send, status: int, body: bytes, more: Iterable[Header] = ()) -> None:
    """Send a whole reply."""
    headers = [
        (LENGTH, str(len(body)).encode()),
        (b"content-type", b"application/json"),
        *more,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def refuse(send: Send) -> None:
    """Answer as if there were no such route."""
    await answer(send, 404, _NOT_FOUND)


async def refuse_websocket(scope: Scope, send: Send) -> None:
    """Deny the handshake with 403, and with the reason where the server can send one."""
    if _DENIAL not in (scope.get("extensions") or {}):
        # Before an accept, a server turns it into 403.
        await send({"type": "websocket.close", "code": 1000, "reason": ""})
        return

    async def denied(message: MutableMapping[str, Any]) -> None:
        await send({**message, "type": f"websocket.{message['type']}"})

    await answer(denied, 403, compact(error_of(403, "PermissionDeniedError", _NO_WEBSOCKET, None)))


def compact(content: object) -> bytes:
    """Write JSON without spaces."""
    return json.dumps(content, separators=(",", ":")).encode()


def error_of(
    status: int, kind: str, message: str, param: str | None, **more: object
) -> Mapping[str, object]:
    """Word an error as vLLM does, with more fields beside it."""
    told = {"message": message, "type": kind, "param": param, "code": status}
    return {"error": told} | more


def resized(headers: Iterable[Header], size: int) -> list[Header]:
    """Correct the length that a request's or a reply's headers tell."""
    told = str(size).encode()
    return [(name, told if name == LENGTH else value) for name, value in headers]
