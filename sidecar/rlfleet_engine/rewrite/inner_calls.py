"""Calls vLLM's routes in process, as part of a client's request.

The call skips gate and guard, which the client's request has passed. It has that request's
headers, so that vLLM gets the same API key, and it never sees a disconnect.
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
class InnerCalls:
    """Makes calls for one client's request."""

    app: Application
    scope: Scope

    async def __call__(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Call a route. Raises AnsweredError for an error of vLLM."""
        reply = _Gathered()
        content = compact(body)
        await self.app(_inner(self.scope, path, len(content)), _given(content), reply)
        if reply.status != _OK:
            raise AnsweredError(reply.status, reply.body)
        answer = json.loads(reply.body)
        return answer if isinstance(answer, dict) else {"data": answer}

    def vocabulary(self) -> Vocabulary:
        """Return the served model's vocabulary."""
        return vocabulary_of(self.scope)

    def context_length(self) -> int:
        """Return the served model's context length in tokens."""
        return context_length_of(self.scope)


def rerouted(scope: Scope, path: str, size: int) -> Scope:
    """Return the scope for another path and a body of ``size`` bytes."""
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
    # A copy, so that vLLM's entries do not get into the state of the client's request.
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
    """Collects a reply."""

    def __init__(self) -> None:
        self.status = 500
        self.body = b""

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.body += message.get("body", b"")
