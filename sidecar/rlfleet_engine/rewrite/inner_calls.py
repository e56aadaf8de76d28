"""Calls vLLM's routes in process, as part of a client's request.

The call skips gate and guard, which the client's request has passed. It has that request's
headers, so that vLLM gets the same API key, and it never sees a disconnect.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlfleet_engine.asgi import LENGTH, Scope, compact
from rlfleet_engine.gate.held_request import Application
from rlfleet_engine.gate.inner_client import FAILED, reply_of
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
        content = compact(body)
        head, reply = await reply_of(self.app, _inner(self.scope, path, len(content)), content)
        if head.get("status") != _OK:
            raise AnsweredError(head.get("status", FAILED), reply)
        answer = json.loads(reply)
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
