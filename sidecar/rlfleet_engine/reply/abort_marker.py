"""Marks a reply as aborted, because its weights failed their proof.

The marker is vLLM's own, ``finish_reason: abort``, after which clients send the request again.
The tokens stay in the reply, as in vLLM's aborted requests.
"""

from typing import Any

from rlfleet_engine.asgi import compact
from rlfleet_engine.json_body import parsed
from rlfleet_engine.sse import BETWEEN, DONE, data_of, with_data


class UnmarkableError(ValueError):
    """A reply has no field for the marker."""


def marked(body: bytes) -> bytes:
    """Return a complete reply with the marker in every choice."""
    answer = parsed(body) or {}
    choices = answer.get("choices")
    if not isinstance(choices, list):
        raise UnmarkableError("no choices in the reply")
    return compact({**answer, "choices": [_ended(choice) for choice in choices]})


def marked_events(events: bytes) -> bytes:
    """Return server-sent events with the marker in every choice that ends."""
    return BETWEEN.join(_marked_event(event) for event in events.split(BETWEEN))


def _marked_event(event: bytes) -> bytes:
    if not event.strip():
        return event
    data = data_of(event)
    if data is None:
        raise UnmarkableError("no data in the event")
    return event if data == DONE else with_data(marked(data))


def _ended(choice: Any) -> Any:
    if not isinstance(choice, dict) or choice.get("finish_reason") is None:
        return choice
    return {**choice, "finish_reason": "abort"}
