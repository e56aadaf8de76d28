"""What the served model's tokenizer knows of ids; vllm/served.py asks vLLM's own objects."""

from collections.abc import Sequence
from typing import Protocol

from rlfleet_engine.json_body import FieldError


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
