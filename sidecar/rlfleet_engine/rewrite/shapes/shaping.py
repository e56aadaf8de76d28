"""All rewriting of requests, as the shaper that safety asks: shapes, and salts of the cache.

Why it is no ASGI middleware of its own: see rlfleet_engine.safety. It must stay true that no
body is read that neither has a shape nor may have a salt.
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
    """Rewrites requests for one application, by a table of routes."""

    app: Application
    turns: Mapping[str, Turn]

    def must_read(self, scope: Scope) -> bool:
        """Decide by the head whether the body has a shape or may have a salt."""
        return turn_of(scope, self.turns) is not None or cache_salt.may_have_salt(scope)

    async def shaped(self, scope: Scope, body: bytes) -> Shaped:
        """Turn a body into what vLLM is asked; what turns it may ask vLLM first."""
        return await Rewritten.instead(self.app, scope, body, turn_of(scope, self.turns))

    def is_unsalted(self, scope: Scope) -> bool:
        """Decide it by the route that vLLM is asked, and by whether a salt was looked for."""
        return cache_salt.is_unsalted(scope)
