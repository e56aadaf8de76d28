"""Calls vLLM's routes in process, behind gate and guard, for the extension itself."""

import asyncio

from rlfleet_engine.asgi import Scope
from rlfleet_engine.gate.held_request import Application, Message

FAILED = 500
"""Statuses from here on mean that the engine failed."""
_HEALTH_S = 1.0


async def status_of(
    app: Application, scope: Scope, method: str, path: str, query: bytes = b""
) -> int:
    """Return the status of the reply; ``scope`` is that of any request to the same server."""
    inner = {**scope, "method": method, "query_string": query, "headers": []}
    status: int = (await head_of(app, inner, path)).get("status", FAILED)
    return status


async def is_healthy(app: Application, scope: Scope) -> bool:
    """Return whether vLLM's core process runs; a core that hangs counts as healthy."""
    return await status_of(app, scope, "GET", "/health") < FAILED


async def has_died(app: Application, scope: Scope) -> bool:
    """Return whether vLLM reports a dead core; a core that hangs may recover."""
    try:
        async with asyncio.timeout(_HEALTH_S):
            return not await is_healthy(app, scope)
    except Exception:  # noqa: BLE001 - says nothing about the core
        return False


async def head_of(app: Application, scope: Scope, path: str) -> Message:
    """Return the head of the reply to a request without a body; empty without a reply."""
    head, _ = await reply_of(app, {**scope, "path": path, "raw_path": path.encode()}, b"")
    return head


async def reply_of(app: Application, scope: Scope, body: bytes) -> tuple[Message, bytes]:
    """Return head and body of the reply to a request; an empty head without a reply."""
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])
    heads: list[Message] = []
    pieces: list[bytes] = []

    async def receive() -> Message:
        for message in messages:
            return message
        # This client never disconnects.
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            heads.append(message)
        else:
            pieces.append(message.get("body", b""))

    await app(scope, receive, send)
    return heads[0] if heads else {}, b"".join(pieces)
