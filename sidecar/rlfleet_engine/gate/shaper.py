"""The interface between the gate and request rewriting, and its implementation without any.

A shaper decides by a request's head whether its body must be read, and builds vLLM's request from
the body. It never decides whether a request passes. Without a shaper no byte must change, and
every request that reads the model must count as one without a salt.
"""

from dataclasses import dataclass
from typing import Protocol

from rlfleet_engine.asgi import Scope
from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.gate.held_request import Application, HeldRequest
from rlfleet_engine.gate.network_guard import computes_nothing


class Shaped(Protocol):
    """The rewritten request, kept if the request has to wait again."""

    @property
    def app(self) -> Application:
        """The application that answers."""

    def scope_into(self, held: HeldRequest, gate: Gate) -> Scope:
        """Put the body for the gate's current version into ``held``; return its scope."""


class Shaper(Protocol):
    """Rewrites requests that have passed the gate."""

    def must_read(self, scope: Scope) -> bool:
        """Return by the head whether the body may have to be rewritten."""

    async def shaped(self, scope: Scope, body: bytes) -> Shaped:
        """Rewrite a request; called once, while the request counts as in flight."""

    def is_unsalted(self, scope: Scope) -> bool:
        """Return whether a request may leave cache entries without a salt."""


@dataclass(frozen=True, slots=True)
class PlainRequest:
    """A request that is not rewritten."""

    app: Application
    scope: Scope

    def scope_into(self, _held: HeldRequest, _gate: Gate) -> Scope:
        """Keep the body."""
        return self.scope


@dataclass(frozen=True, slots=True)
class NoShaper:
    """The shaper that rewrites nothing."""

    app: Application

    def must_read(self, _scope: Scope) -> bool:
        """Read no body."""
        return False

    async def shaped(self, scope: Scope, _body: bytes) -> Shaped:
        """Return the request unchanged."""
        return PlainRequest(self.app, scope)

    def is_unsalted(self, scope: Scope) -> bool:
        """Return whether it reads the model; a client's own salt is not bound to a version."""
        return scope["method"] == "POST" and not computes_nothing(scope["path"])
