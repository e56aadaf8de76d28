"""Replies of the extension itself, without vLLM.

They are compact JSON with a Content-Length, because some clients read nothing else.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]

LENGTH = b"content-length"
EVENT_STREAM = b"text/event-stream"
_NOT_FOUND = b'{"detail":"Not Found"}'
"""Byte for byte vLLM's reply to an unknown path."""
_DENIAL = "websocket.http.response"
_NO_WEBSOCKET = (
    "websockets are not supported: a connection could outlive a weight change;"
    " use POST /v1/audio/transcriptions"
)


async def answer(send: Send, status: int, body: bytes, more: Iterable[Header] = ()) -> None:
    """Send a complete JSON reply."""
    headers = [
        (LENGTH, str(len(body)).encode()),
        (b"content-type", b"application/json"),
        *more,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def refuse(send: Send) -> None:
    """Answer 404, as for an unknown route."""
    await answer(send, 404, _NOT_FOUND)


async def refuse_websocket(scope: Scope, send: Send) -> None:
    """Deny the handshake with 403, and with the reason if the server supports one."""
    if _DENIAL not in (scope.get("extensions") or {}):
        # The server turns a close before the accept into 403.
        await send({"type": "websocket.close", "code": 1000, "reason": ""})
        return

    async def denied(message: MutableMapping[str, Any]) -> None:
        await send({**message, "type": f"websocket.{message['type']}"})

    await answer(denied, 403, error_of(403, "PermissionDeniedError", _NO_WEBSOCKET))


def compact(content: object) -> bytes:
    """Return JSON without spaces."""
    return json.dumps(content, separators=(",", ":")).encode()


def error_of(
    status: int, kind: str, message: str, param: str | None = None, **more: object
) -> bytes:
    """Return a body with an error in vLLM's form, and more fields at the top level."""
    error = {"message": message, "type": kind, "param": param, "code": status}
    return compact({"error": error, **more})


def resized(headers: Iterable[Header], size: int) -> list[Header]:
    """Return the headers with the Content-Length set to ``size``, if they have one."""
    length = str(size).encode()
    return [(name, length if name == LENGTH else value) for name, value in headers]
