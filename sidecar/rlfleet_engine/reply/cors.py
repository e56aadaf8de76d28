"""Adds vLLM's CORS headers to the extension's own replies.

vLLM's CORS middleware runs behind the extension and sees only vLLM's replies. So the extension
copies the headers from a reply of vLLM's /version, to which vLLM's CORS settings apply.
"""

from rlfleet_engine.asgi import Header, Scope, Send
from rlfleet_engine.gate.held_request import Application, Message
from rlfleet_engine.gate.inner_client import head_of

_ORIGIN = b"origin"
_CORS = b"access-control-"
_VARY = b"vary"
_ANY_ROUTE = "/version"


def with_cors(app: Application, scope: Scope, send: Send) -> Send:
    """Return ``send``, wrapped to add CORS headers if the request has an origin."""
    origin: list[Header] = [header for header in scope["headers"] if header[0] == _ORIGIN]
    if not origin:
        return send

    async def adding(message: Message) -> None:
        if message["type"] == "http.response.start" and not _has_cors(message):
            inner = {**scope, "method": "GET", "query_string": b"", "headers": origin}
            head = await head_of(app, inner, _ANY_ROUTE)
            added = [one for one in _cors_of(head) if one not in message["headers"]]
            message = {**message, "headers": [*message["headers"], *added]}
        await send(message)

    return adding


def _has_cors(head: Message) -> bool:
    return any(name.startswith(_CORS) for name, _ in head["headers"])


def _cors_of(head: Message) -> list[Header]:
    headers: list[Header] = head.get("headers", [])
    return [one for one in headers if one[0].startswith(_CORS) or one[0] == _VARY]
