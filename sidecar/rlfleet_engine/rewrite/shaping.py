"""The shaper (gate/shaper.py) with all rewriting of requests: shapes, and salts of the cache.

rlfleet_engine.safety says why it is no ASGI middleware of its own. A body must be read only if
its route has a shape or it may have a salt.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from rlfleet_engine.asgi import Scope, Send, answer, error_of
from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.gate.held_request import Application, HeldRequest, Receive
from rlfleet_engine.gate.shaper import Shaped, Shaper
from rlfleet_engine.json_body import FieldError, has_json
from rlfleet_engine.rewrite import cache_salt
from rlfleet_engine.rewrite.inner_calls import InnerCalls, rerouted
from rlfleet_engine.rewrite.rewrite import (
    AnsweredError,
    DirectAnswer,
    ReplyRewrite,
    RewritingSend,
    Turn,
)

_OK = 200
_BAD_REQUEST = 400


@dataclass(frozen=True, slots=True)
class Shaping(Shaper):
    """Rewrites requests by a table of routes."""

    turns: Mapping[str, Turn]

    def must_read(self, scope: Scope) -> bool:
        """Return by the head whether the body may have a shape or a salt."""
        return self._turn(scope) is not None or cache_salt.may_have_salt(scope)

    async def shaped(self, scope: Scope, body: bytes) -> Shaped:
        """Translate a request if its route has a shape; this may call vLLM first."""
        turn = self._turn(scope)
        try:
            turned = None if turn is None else await turn(body, InnerCalls(self.app, scope))
        except FieldError as error:
            content = error_of(_BAD_REQUEST, "BadRequestError", str(error), error.field)
            return Shaped(partial(_answer, _BAD_REQUEST, content), scope)
        except AnsweredError as error:
            return Shaped(partial(_answer, error.status, error.body), scope)
        if turned is None:
            return _Rewritten(self.app, scope, body, body)
        if isinstance(turned, DirectAnswer):
            return Shaped(partial(_answer, _OK, turned.body), scope)
        if turned.path != scope["path"]:
            scope = rerouted(scope, turned.path, len(turned.body))
        app = self.app if turned.back is None else partial(_translate, self.app, turned.back)
        return _Rewritten(app, scope, body, turned.body)

    def is_unsalted(self, scope: Scope) -> bool:
        """Return whether its route takes no salt, or its body is no JSON."""
        return cache_salt.is_unsalted(scope)

    def _turn(self, scope: Scope) -> Turn | None:
        turn = self.turns.get(scope["path"])
        return turn if turn is not None and has_json(scope) else None


@dataclass(frozen=True, slots=True)
class _Rewritten(Shaped):
    """A request whose body was read, with the body for vLLM in its place."""

    came: bytes
    body: bytes
    """Without a salt for the gate's version."""

    def scope_into(self, held: HeldRequest, gate: Gate) -> Scope:
        """Put the body into ``held``, with its salt for the gate's version; return the scope."""
        body = cache_salt.salted(self.body, gate.holding)
        if gate.era and body is self.body:
            body = cache_salt.in_era(body, gate.era, self.scope["path"])
        if body is self.came:
            return self.scope
        held.replace(body)
        return rerouted(self.scope, self.scope["path"], len(body))


async def _answer(status: int, body: bytes, _scope: Scope, _receive: Receive, send: Send) -> None:
    await answer(send, status, body)


async def _translate(
    app: Application, back: ReplyRewrite, scope: Scope, receive: Receive, send: Send
) -> None:
    await app(scope, receive, RewritingSend(send, back))
