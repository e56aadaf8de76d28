"""Keeps a conversation's ids: a prompt begins with those that its turns were made with.

A template renders what a model said from its text, and a tokenizer may cut the same text
into other ids than the model made. So the ids of the conversation so far are put in the
place of what was rendered for it. It must stay true that the prompt begins with the given
ids, all of them, and goes on as the template has it; nothing is rebuilt from text.

They are given as ``required_prefix_token_ids``, for all messages up to the last of the
assistant, or on that message itself, as what it was made from and what was made.
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
"""What clients keep on a message; no template renders it."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """The ids with which the prompt has to begin."""

    field: str
    """Where the client gave them."""
    ids: Sequence[int]
    messages: int
    """For so many messages of the conversation they stand."""

    def spliced(
        self, so_far: Sequence[int], whole: Sequence[int], vocabulary: Vocabulary
    ) -> list[int]:
        """Put the ids in the place of what was rendered for them. Raises FieldError.

        ``so_far`` was rendered from their messages alone, and ``whole`` from all. Turns are
        counted by the ids that end them: a template may render a turn otherwise once another
        follows it, as those do which leave out what a model thought.
        """
        check_ids(vocabulary, self.ids, self.field)
        ends = vocabulary.ends
        turns = sum(one in ends for one in so_far)
        if not turns:
            raise FieldError(self.field, "cannot be put in: the template ends no turn by a token")
        places = [place for place, one in enumerate(whole) if one in ends]
        if len(places) < turns:
            raise FieldError(
                self.field, "cannot be put in: the prompt is to end within the message they end"
            )
        # A model that ran into a limit has made no end, and the template has one.
        has_end = self.ids[-1] in ends
        return [*self.ids, *whole[places[turns - 1] + has_end :]]


def prefix_of(content: Mapping[str, Any]) -> Prefix | None:
    """Find the ids with which a chat's prompt has to begin. Raises FieldError."""
    messages = content.get("messages")
    if not isinstance(messages, list):
        return None
    if content.get(FIELD) is not None:
        last = max((place for place, one in enumerate(messages) if _is_made(one)), default=None)
        ids = _ids(content, FIELD, FIELD)
        return Prefix(FIELD, ids, len(messages) if last is None else last + 1) if ids else None
    for place in reversed(range(len(messages))):
        message, name = messages[place], f"messages.{place}"
        if _is_made(message) and any(message.get(one) is not None for one in (_PROMPT, _MADE)):
            ids = [
                *_ids(message, _PROMPT, f"{name}.{_PROMPT}"),
                *_ids(message, _MADE, f"{name}.{_MADE}"),
            ]
            return Prefix(f"{name}.{_MADE}", ids, place + 1) if ids else None
    return None


def without(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request as vLLM renders it by itself."""
    kept = {name: value for name, value in content.items() if name != FIELD}
    return kept | {"messages": [_plain(message) for message in content["messages"]]}


def so_far(content: Mapping[str, Any], prefix: Prefix) -> dict[str, Any]:
    """Return a request that renders the prefix's own messages, to the end of their last turn."""
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
        raise FieldError(field, "must be a list of token ids")
    return ids
