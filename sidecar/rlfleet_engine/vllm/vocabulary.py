"""Checks of token ids against the served model's vocabulary; vllm/served.py implements it."""

from collections.abc import Sequence
from typing import Protocol

from rlfleet_engine.json_body import FieldError


class Vocabulary(Protocol):
    """The vocabulary of the served model."""

    @property
    def ends(self) -> frozenset[int]:
        """The ids by which a model ends its turn."""

    @property
    def size(self) -> int:
        """One above the model's highest id; some ids below may have no token."""

    def tokens(self, ids: Sequence[int]) -> list[str | None]:
        """Return each id's token as in the vocabulary; None without one.

        The vocabulary has a substitute character for each byte that is no character.
        """


def check_ids(vocabulary: Vocabulary, ids: Sequence[int], field: str) -> None:
    """Raise FieldError if the model lacks one of the ids."""
    for place, one in enumerate(ids):
        if one >= vocabulary.size:
            raise _unknown(field, place, one)


def tokens_of(vocabulary: Vocabulary, ids: Sequence[int], field: str) -> list[str]:
    """Return each id's token. Raises FieldError for an id without one."""
    found = []
    for place, token in enumerate(vocabulary.tokens(ids)):
        if token is None:
            raise _unknown(field, place, ids[place])
        found.append(token)
    return found


def _unknown(field: str, place: int, one: int) -> FieldError:
    return FieldError(field, f"has {one} at index {place}, which is no token of this model")
