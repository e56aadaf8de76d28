"""What the gate demands of request rewriting; the classes here rewrite nothing.

A shaper decides by a request's head whether its body must be read, and builds vLLM's request from
the body. It never decides whether a request passes. Without rewriting no byte must change, and
every request that reads the model must count as one without a salt.
"""

from dataclasses import dataclass

from rlfleet_engine.asgi import Scope
from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.gate.held_request import Application, HeldRequest
from rlfleet_engine.gate.network_guard import computes_nothing


@dataclass(frozen=True, slots=True)
class Shaped:
    """A request with the application that answers it, kept if it has to wait again."""

    app: Application
    scope: Scope

    def scope_into(self, _held: HeldRequest, _gate: Gate) -> Scope:
        """Put the body for the gate's current version into ``held``; return its scope."""
        return self.scope


@dataclass(frozen=True, slots=True)
class Shaper:
    """Shapes requests that have passed the gate."""

    app: Application

    def must_read(self, _scope: Scope) -> bool:
        """Return by the head whether the body may have to be rewritten."""
        return False

    async def shaped(self, scope: Scope, _body: bytes) -> Shaped:
        """Rewrite a request; called once, while the request counts as in flight."""
        return Shaped(self.app, scope)

    def is_unsalted(self, scope: Scope) -> bool:
        """Return whether a request may leave cache entries without a salt for its version."""
        return scope["method"] == "POST" and not computes_nothing(scope["path"])
