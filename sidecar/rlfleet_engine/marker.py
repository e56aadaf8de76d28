"""Ends an answer with the marker of an abort, for weights that failed their proof.

vLLM's own marker is ``finish_reason: abort``: a client that knows it sends the request
anew. The tokens stay, as vLLM leaves those of a request that it aborts.
"""

import json
from collections.abc import Mapping

from rlfleet_engine.answers import compact

_DATA = b"data: "
_DONE = b"[DONE]"
_BETWEEN = b"\n\n"


class UnmarkableError(ValueError):
    """An answer has no place for the marker."""


def marked(body: bytes) -> bytes:
    """Return a whole answer of which every choice ends with the marker."""
    return compact(_ended(_parsed(body)))


def marked_events(events: bytes) -> bytes:
    """Return server-sent events in which every choice that ends does so with the marker."""
    return _BETWEEN.join(_marked_event(event) for event in events.split(_BETWEEN))


def _marked_event(event: bytes) -> bytes:
    data = event.strip().removeprefix(_DATA)
    if not data or data == _DONE:
        return event
    return _DATA + compact(_ended(_parsed(data)))


def _parsed(body: bytes) -> Mapping[str, object]:
    try:
        parsed = json.loads(body)
    except ValueError as error:
        raise UnmarkableError("it is no JSON") from error
    if not isinstance(parsed, dict) or not isinstance(parsed.get("choices"), list):
        raise UnmarkableError("it has no choices")
    return parsed


def _ended(answer: Mapping[str, object]) -> Mapping[str, object]:
    choices = answer["choices"]
    assert isinstance(choices, list)  # noqa: S101 - _parsed saw to it
    return {**answer, "choices": [_ended_choice(choice) for choice in choices]}


def _ended_choice(choice: object) -> object:
    if not isinstance(choice, dict) or choice.get("finish_reason") is None:
        return choice
    return {**choice, "finish_reason": "abort"}
