"""The shaper (gate/shaper.py) with all rewriting of requests: shapes, and salts of the cache.

rlfleet_engine.safety says why it is no ASGI middleware of its own. A body must be read only if
its route has a shape or it may have a salt.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rlfleet_engine.asgi import Scope
from rlfleet_engine.gate.held_request import Application
from rlfleet_engine.gate.shaper import Shaped
from rlfleet_engine.rewrite import cache_salt
from rlfleet_engine.rewrite.rewrite import Turn
from rlfleet_engine.rewrite.rewritten import Rewritten
from rlfleet_engine.rewrite.shapes.routes import turn_of


@dataclass(frozen=True, slots=True)
class Shaping:
    """Rewrites requests by a table of routes."""

    app: Application
    turns: Mapping[str, Turn]

    def must_read(self, scope: Scope) -> bool:
        """Return by the head whether the body may have a shape or a salt."""
        return turn_of(scope, self.turns) is not None or cache_salt.may_have_salt(scope)

    async def shaped(self, scope: Scope, body: bytes) -> Shaped:
        """Rewrite a request; the translation may call vLLM first."""
        return await Rewritten.instead(self.app, scope, body, turn_of(scope, self.turns))

    def is_unsalted(self, scope: Scope) -> bool:
        """Return whether the request may leave cache entries without a salt."""
        return cache_salt.is_unsalted(scope)
