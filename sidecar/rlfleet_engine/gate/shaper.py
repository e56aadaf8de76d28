"""What the extension's safety asks of whatever rewrites requests, and the answer of none.

A shaper decides by a request's head whether its body must be read, and makes of the body
what vLLM is asked. It never decides whether a request passes. It must stay true that a
shaper which is left out changes no byte, and that then every request that computes counts
as one that no salt separates in the caches.
"""

from dataclasses import dataclass
from typing import Protocol

from rlfleet_engine.asgi import Scope
from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.gate.held_request import Application, Held
from rlfleet_engine.gate.network_guard import computes_nothing


class Shaped(Protocol):
    """What vLLM is asked for one request; kept while the request waits once more."""

    @property
    def app(self) -> Application:
        """Who answers."""

    def scope_into(self, held: Held, gate: Gate) -> Scope:
        """Put the body for what the gate holds now into ``held``; return the scope for it."""


class Shaper(Protocol):
    """Rewrites requests that have passed the gate."""

    def must_read(self, scope: Scope) -> bool:
        """Decide by the head whether the body has a part in what vLLM is asked."""

    async def shaped(self, scope: Scope, body: bytes) -> Shaped:
        """Make of a body what vLLM is asked; called within a passage of the gate, once."""

    def is_unsalted(self, scope: Scope) -> bool:
        """Decide whether a request may leave in the caches what no salt separates."""


@dataclass(frozen=True, slots=True)
class AsItCame:
    """A request that nothing rewrites."""

    app: Application
    scope: Scope

    def scope_into(self, _held: Held, _gate: Gate) -> Scope:
        """Leave the body as it came."""
        return self.scope


@dataclass(frozen=True, slots=True)
class Unshaped:
    """Rewrites nothing: neither shapes nor salts."""

    app: Application

    def must_read(self, _scope: Scope) -> bool:
        """Leave every body unread."""
        return False

    async def shaped(self, scope: Scope, _body: bytes) -> Shaped:
        """Return the request as it came."""
        return AsItCame(self.app, scope)

    def is_unsalted(self, scope: Scope) -> bool:
        """Count all that computes: a salt of a client's own is not bound to a version."""
        return scope["method"] == "POST" and not computes_nothing(scope["path"])
