"""Ends an answer with the marker of an abort, for weights that failed their proof.

vLLM's own marker is ``finish_reason: abort``: a client that knows it sends the request
anew. The tokens stay, as vLLM leaves those of a request that it aborts.
"""

from typing import Any

from rlfleet_engine.asgi import compact
from rlfleet_engine.json_body import parsed
from rlfleet_engine.sse import BETWEEN, DONE, data_of, with_data


class UnmarkableError(ValueError):
    """An answer has no place for the marker."""


def marked(body: bytes) -> bytes:
    """Return a whole answer of which every choice ends with the marker."""
    answer = parsed(body)
    choices = None if answer is None else answer.get("choices")
    if answer is None or not isinstance(choices, list):
        raise UnmarkableError("it has no choices")
    return compact({**answer, "choices": [_ended(choice) for choice in choices]})


def marked_events(events: bytes) -> bytes:
    """Return server-sent events in which every choice that ends does so with the marker."""
    return BETWEEN.join(_marked_event(event) for event in events.split(BETWEEN))


def _marked_event(event: bytes) -> bytes:
    if not event.strip():
        return event
    data = data_of(event)
    if data is None:
        raise UnmarkableError("it is an event of another kind")
    return event if data == DONE else with_data(marked(data))


def _ended(choice: Any) -> Any:
    if not isinstance(choice, dict) or choice.get("finish_reason") is None:
        return choice
    return {**choice, "finish_reason": "abort"}
