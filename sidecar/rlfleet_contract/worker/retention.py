"""Which published versions a fleet still needs, and which ones it does not."""

from typing import Annotated, Self

from pydantic import Field, ValidationError

from rlfleet_contract.paths import VERSION_PATTERN
from rlfleet_contract.schema import ContractReply, ContractRequest

MOST_NEEDED = 32
"""A fleet that needs more versions is in such a mess that none is deleted."""


class Needs(ContractRequest):
    """What an operator's fleet needs, in the header paths.NEEDS_HEADER."""

    versions: Annotated[list[Annotated[str, Field(pattern=VERSION_PATTERN)]], Field(min_length=1)]
    """Those that a worker serves, goes to, comes from or may go back to."""
    keep: int | None = Field(default=None, ge=1)
    """How many of the newest stay besides; None: nothing is deleted."""

    @classmethod
    def of(cls, text: str) -> Self | None:
        """Parse the header; None if it is not understood, because a newer operator means more."""
        try:
            return cls.model_validate_json(text)
        except ValidationError:
            return None


class Unneeded(ContractReply):
    """What a worker found that its fleet does not need."""

    versions: list[str] = Field(default_factory=list)
    """The oldest of them."""
    count: int = 0
    """Number of all."""
    deleted: int = 0
    """Number of versions that this sidecar has deleted since its start."""
    error: str = ""
    """Why the last look or deletion failed; empty after a good one."""
