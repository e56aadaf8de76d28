"""Asks vLLM's own routes from within, as part of a request that is under way.

The question goes past gate and guard, which the client's request has passed already. It
has that request's headers, so that vLLM sees the same key, and no client that could leave.
"""

import asyncio
import json
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from rlfleet_engine.asgi import LENGTH, Scope, compact
from rlfleet_engine.gate.held_request import Application, Receive
from rlfleet_engine.rewrite.rewrite import AnsweredError
from rlfleet_engine.vllm.served import context_length_of, vocabulary_of
from rlfleet_engine.vllm.vocabulary import Vocabulary

_OK = 200


@dataclass(frozen=True, slots=True)
class Asking:
    """Asks on behalf of one request."""

    app: Application
    scope: Scope

    async def __call__(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Ask a route. Raises AnsweredError."""
        reply = _Gathered()
        content = compact(body)
        await self.app(_inner(self.scope, path, len(content)), _given(content), reply)
        if reply.status != _OK:
            raise AnsweredError(reply.status, reply.body)
        answer = json.loads(reply.body)
        return answer if isinstance(answer, dict) else {"data": answer}

    def vocabulary(self) -> Vocabulary:
        """Return that of the server which has the request."""
        return vocabulary_of(self.scope)

    def context_length(self) -> int:
        """Return that of the server which has the request."""
        return context_length_of(self.scope)


def rerouted(scope: Scope, path: str, size: int) -> Scope:
    """Return the scope for another path and body."""
    length = str(size).encode()
    kept = [
        header for header in scope["headers"] if header[0] not in {LENGTH, b"transfer-encoding"}
    ]
    return {
        **scope,
        "path": path,
        "raw_path": path.encode(),
        "headers": [*kept, (LENGTH, length)],
    }


def _inner(scope: Scope, path: str, size: int) -> Scope:
    # What vLLM remembers of a request in its state is not the client's request's.
    state = dict(scope.get("state", {}))
    return {**rerouted(scope, path, size), "query_string": b"", "state": state}


def _given(content: bytes) -> Receive:
    messages = iter([{"type": "http.request", "body": content, "more_body": False}])

    async def receive() -> MutableMapping[str, Any]:
        for message in messages:
            return message
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    return receive


class _Gathered:
    """Keeps a reply."""

    def __init__(self) -> None:
        self.status = 500
        self.body = b""

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.body += message.get("body", b"")
