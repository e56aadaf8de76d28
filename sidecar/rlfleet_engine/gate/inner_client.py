"""Asks one of vLLM's routes from within, past gate and guard, for the extension itself."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

from rlfleet_engine.asgi import Scope
from rlfleet_engine.gate.held_request import Application, Message

FAILED = 500
"""From this status on the engine has failed by itself."""


async def status_of(
    app: Application, scope: Scope, method: str, path: str, query: bytes = b""
) -> int:
    """Return the status of the answer; ``scope`` is any request's of the same server."""
    inner = {**scope, "method": method, "query_string": query, "headers": []}
    status: int = (await head_of(app, inner, path)).get("status", FAILED)
    return status


async def is_healthy(app: Application, scope: Scope) -> bool:
    """Tell whether vLLM says that its core lives; it says so of one that hangs, too."""
    return await status_of(app, scope, "GET", "/health") < FAILED


async def head_of(app: Application, scope: Scope, path: str) -> Message:
    """Return the head of the answer to a request without a body; empty if there is none."""
    inner = {**scope, "path": path, "raw_path": path.encode()}
    heads: list[Message] = []
    messages = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> MutableMapping[str, Any]:
        for message in messages:
            return message
        # Nobody leaves.
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            heads.append(message)

    await app(inner, receive, send)
    return heads[0] if heads else {}
