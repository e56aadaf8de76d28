"""Gives the extension's own answers the CORS headers that vLLM's answers have.

vLLM's middleware for CORS stands behind the extension and sees only what vLLM answers. What
it gives is asked of it, by a route that is always answered, so that its settings count.
"""

from rlfleet_engine.asgi import Header, Scope, Send
from rlfleet_engine.gate.held_request import Application, Message
from rlfleet_engine.gate.inner_client import head_of

_ORIGIN = b"origin"
_CORS = b"access-control-"
_VARY = b"vary"
_ANY_ROUTE = "/version"


def with_cors(app: Application, scope: Scope, send: Send) -> Send:
    """Return ``send``, or one that adds those headers where they are missing."""
    origin: list[Header] = [header for header in scope["headers"] if header[0] == _ORIGIN]
    if not origin:
        return send

    async def adding(message: Message) -> None:
        if message["type"] == "http.response.start" and not _is_told(message):
            inner = {**scope, "method": "GET", "query_string": b"", "headers": origin}
            head = await head_of(app, inner, _ANY_ROUTE)
            message = {**message, "headers": [*message["headers"], *_cors_of(head)]}
        await send(message)

    return adding


def _is_told(head: Message) -> bool:
    return any(name.startswith(_CORS) for name, _ in head["headers"])


def _cors_of(head: Message) -> list[Header]:
    headers: list[Header] = head.get("headers", [])
    return [one for one in headers if one[0].startswith(_CORS) or one[0] == _VARY]
