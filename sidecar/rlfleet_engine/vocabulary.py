"""What the served model's tokenizer knows of ids; vLLM's own serving objects tell it."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

from rlfleet_engine.answers import Scope
from rlfleet_engine.fields import FieldError


class Vocabulary(Protocol):
    """What is asked of it."""

    @property
    def ends(self) -> frozenset[int]:
        """The ids by which a model ends its turn."""

    @property
    def size(self) -> int:
        """The model has no id from here on; some below it may have no token."""

    def tokens(self, ids: Sequence[int]) -> list[str | None]:
        """Return each id's token as the vocabulary writes it; None if there is none.

        A byte that is no character by itself has a character of its own there.
        """


class Served:
    """The vocabulary of the model that vLLM serves."""

    def __init__(self, serving: Any) -> None:
        renderer, config = serving.renderer, serving.model_config
        self._tokenizer = renderer.get_tokenizer()
        named = (config.try_get_generation_config() or {}).get("eos_token_id") or []
        ends = {*(named if isinstance(named, list) else [named]), renderer.get_eos_token_id()}
        self.ends = frozenset(ends - {None})
        self.size = max(self._tokenizer.max_token_id + 1, config.get_vocab_size())

    def tokens(self, ids: Sequence[int]) -> list[str | None]:
        """Ask the tokenizer."""
        highest = self._tokenizer.max_token_id
        known = [one for one in ids if one <= highest]
        found = iter(self._tokenizer.convert_ids_to_tokens(known))
        return [next(found) if one <= highest else None for one in ids]


def vocabulary_of(scope: Scope) -> Vocabulary:
    """Return the vocabulary of the server that answers this request."""
    return _served(scope["app"].state.serving_tokenization)


@lru_cache(maxsize=1)
def _served(serving: Any) -> Vocabulary:
    return Served(serving)


def check_ids(vocabulary: Vocabulary, ids: Sequence[int], field: str) -> None:
    """Raise FieldError if the model has no such id."""
    for place, one in enumerate(ids):
        if one >= vocabulary.size:
            raise _unknown(field, place, one)


def tokens_of(vocabulary: Vocabulary, ids: Sequence[int], field: str) -> list[str]:
    """Return each id's token. Raises FieldError for an id that has none."""
    found = []
    for place, token in enumerate(vocabulary.tokens(ids)):
        if token is None:
            raise _unknown(field, place, ids[place])
        found.append(token)
    return found


def _unknown(field: str, place: int, one: int) -> FieldError:
    return FieldError(field, f"has {one} at place {place}, which is no token of this model")
