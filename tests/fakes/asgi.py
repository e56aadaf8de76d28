"""Bodies of requests and replies, as a fake engine receives and sends them."""

import json
from typing import Any

from rlfleet_engine.asgi import Send
from rlfleet_engine.gate.held_request import Receive


async def body_of(receive: Receive) -> dict[str, Any]:
    """Receive a body and read it; one of no bytes is an object without fields."""
    data, more = b"", True
    while more:
        message = await receive()
        data += message.get("body", b"")
        more = message.get("more_body", False)
    parsed = json.loads(data) if data else {}
    assert isinstance(parsed, dict)
    return parsed


async def send_json(send: Send, status: int, content: object) -> None:
    """Send a whole reply."""
    body = json.dumps(content, separators=(",", ":")).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_event(send: Send, content: object) -> None:
    """Send an event of a stream whose head is sent."""
    event = f"data: {json.dumps(content, separators=(',', ':'))}\n\n"
    await send({"type": "http.response.body", "body": event.encode(), "more_body": True})


async def send_refusal(send: Send, told: dict[str, Any], *, in_stream: bool) -> None:
    """Send an error, as an event if the stream has begun."""
    if not in_stream:
        await send_json(send, told["error"]["code"], told)
        return
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send_event(send, told)
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})
