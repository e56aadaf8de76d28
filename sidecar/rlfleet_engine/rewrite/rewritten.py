"""One request whose body was read, rewritten for vLLM where it has to be."""

from dataclasses import dataclass
from typing import Self

from rlfleet_engine.asgi import Scope, Send, answer, compact, error_of
from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.gate.held_request import Application, HeldRequest, Receive
from rlfleet_engine.json_body import FieldError
from rlfleet_engine.rewrite.cache_salt import in_era, salted
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
class Rewritten:
    """The application that answers, with the scope and body that it gets."""

    app: Application
    scope: Scope
    came: bytes = b""
    """The client's body; empty if the reply is known already."""
    body: bytes = b""
    """The body for vLLM, except for its salt."""

    @classmethod
    async def instead(cls, app: Application, scope: Scope, body: bytes, turn: Turn | None) -> Self:
        """Return the request, translated if ``turn`` has something to translate."""
        if turn is None:
            return cls(app, scope, body, body)
        try:
            turned = await turn(body, InnerCalls(app, scope))
        except FieldError as error:
            content = error_of(_BAD_REQUEST, "BadRequestError", str(error), error.field)
            return cls(_answering(_BAD_REQUEST, compact(content)), scope)
        except AnsweredError as error:
            return cls(_answering(error.status, error.body), scope)
        if turned is None:
            return cls(app, scope, body, body)
        if isinstance(turned, DirectAnswer):
            return cls(_answering(_OK, turned.body), scope)
        if turned.path != scope["path"]:
            scope = rerouted(scope, turned.path, len(turned.body))
        app = app if turned.back is None else _turning(app, turned.back)
        return cls(app, scope, body, turned.body)

    def scope_into(self, held: HeldRequest, gate: Gate) -> Scope:
        """Put the body into ``held``, with its salt for the gate's version; return the scope."""
        body = salted(self.body, gate.holding)
        if gate.era and body is self.body:
            body = in_era(body, gate.era, self.scope["path"])
        if body is self.came:
            return self.scope
        held.replace(body)
        return rerouted(self.scope, self.scope["path"], len(body))


def _answering(status: int, body: bytes) -> Application:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await answer(send, status, body)

    return app


def _turning(app: Application, back: ReplyRewrite) -> Application:
    async def turning(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, RewritingSend(send, back))

    return turning
