"""Asks one of vLLM's routes from within, past gate and guard, for the extension itself."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

from rlfleet_engine.answers import Scope
from rlfleet_engine.held import Application

_FAILED = 500


async def status_of(
    app: Application, scope: Scope, method: str, path: str, query: bytes = b""
) -> int:
    """Return the status of the answer; ``scope`` is any request's of the same server."""
    inner = {
        **scope,
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "headers": [],
    }
    statuses: list[int] = []
    messages = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> MutableMapping[str, Any]:
        for message in messages:
            return message
        # Nobody leaves.
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await app(inner, receive, send)
    return statuses[0] if statuses else _FAILED
