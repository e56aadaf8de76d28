"""Keeps the token ids of a conversation's earlier turns at the start of the prompt.

A chat template renders earlier turns from their text, and a tokenizer may split that text into
other ids than the model generated. So the given ids replace the rendered ones. The prompt must
start with all given ids and continue as the template renders it; no id comes from text.

Clients send them as ``required_prefix_token_ids``, for all messages up to the assistant's last,
or on that message, as its prompt and its generated ids.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlfleet_engine.json_body import FieldError
from rlfleet_engine.vllm.vocabulary import Vocabulary, check_ids

FIELD = "required_prefix_token_ids"
NAMES = (FIELD.encode(), b"generation_token_ids")
_PROMPT = "prompt_token_ids"
_MADE = "generation_token_ids"
_OURS = frozenset({_PROMPT, _MADE, "generation_log_probs"})
"""Fields that clients keep on a message and no template renders."""


@dataclass(frozen=True, slots=True)
class KeptIds:
    """The ids at the start of the prompt."""

    field: str
    """The client's field with the ids, for errors."""
    ids: Sequence[int]
    messages: int
    """The number of messages that the ids replace."""

    def spliced(
        self, so_far: Sequence[int], whole: Sequence[int], vocabulary: Vocabulary
    ) -> list[int]:
        """Return the prompt with these ids in place of the rendered ones. Raises FieldError.

        ``so_far`` is rendered from their messages only, ``whole`` from all. The split counts turns
        by the ids that end them, because a template may render an earlier turn differently, such
        as without a model's reasoning.
        """
        check_ids(vocabulary, self.ids, self.field)
        ends = vocabulary.ends
        turns = sum(one in ends for one in so_far)
        if not turns:
            raise FieldError(
                self.field, "needs a chat template that ends turns with a token; leave it out"
            )
        places = [place for place, one in enumerate(whole) if one in ends]
        if len(places) < turns:
            raise FieldError(
                self.field, "ends in a message that the prompt continues; use a later message"
            )
        # A model that reached a length limit generated no end token, but the template has one.
        has_end = self.ids[-1] in ends
        return [*self.ids, *whole[places[turns - 1] + has_end :]]


def prefix_of(content: Mapping[str, Any]) -> KeptIds | None:
    """Return the ids at the start of a chat's prompt, if a client sent some. Raises FieldError."""
    messages = content.get("messages")
    if not isinstance(messages, list):
        return None
    if content.get(FIELD) is not None:
        last = max((place for place, one in enumerate(messages) if _is_made(one)), default=None)
        ids = _ids(content, FIELD, FIELD)
        return KeptIds(FIELD, ids, len(messages) if last is None else last + 1) if ids else None
    for place in reversed(range(len(messages))):
        message, name = messages[place], f"messages.{place}"
        if _is_made(message) and any(message.get(one) is not None for one in (_PROMPT, _MADE)):
            ids = [
                *_ids(message, _PROMPT, f"{name}.{_PROMPT}"),
                *_ids(message, _MADE, f"{name}.{_MADE}"),
            ]
            return KeptIds(f"{name}.{_MADE}", ids, place + 1) if ids else None
    return None


def without(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request without these fields, which vLLM does not know."""
    kept = {name: value for name, value in content.items() if name != FIELD}
    return kept | {"messages": [_plain(message) for message in content["messages"]]}


def so_far(content: Mapping[str, Any], prefix: KeptIds) -> dict[str, Any]:
    """Return a request that renders only the prefix's messages, to the end of their last turn."""
    return {
        **content,
        "messages": content["messages"][: prefix.messages],
        "add_generation_prompt": False,
        "continue_final_message": False,
    }


def _plain(message: Any) -> Any:
    if not isinstance(message, dict):
        return message
    return {name: value for name, value in message.items() if name not in _OURS}


def _is_made(message: object) -> bool:
    return isinstance(message, dict) and message.get("role") == "assistant"


def _ids(place: Mapping[str, Any], name: str, field: str) -> list[int]:
    ids = place.get(name)
    if not isinstance(ids, list) or any(type(one) is not int or one < 0 for one in ids):
        raise FieldError(field, "must be a list of token ids (integers of at least 0)")
    return ids
