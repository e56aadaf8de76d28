"""Which staged versions or adapters make room for the next one. Pure.

Of versions those in use are kept, and the one before for a way back. It must stay true
that nothing goes that is in use, and that nothing goes at all when it would not suffice.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

_PAGE = 4096
_BESIDE = 64 * 1024
"""What a copy takes besides its files: its record and its directory."""
Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True, slots=True)
class StagedCopy(Generic[Name]):
    """One version or adapter, as far as room is concerned."""

    name: Name
    nbytes: int
    used_at: float | None = None
    """When the engine was last seen to serve it, if that keeps it; None if it never was."""


def footprint(sizes: Sequence[int]) -> int:
    """Tell how much room files of these sizes take, as a kubelet measures it."""
    return sum(-(-size // _PAGE) * _PAGE for size in sizes) + _BESIDE


def evictions(
    copies: Sequence[StagedCopy[Name]], in_use: frozenset[Name], nbytes: int, free: int
) -> tuple[Name, ...] | None:
    """Tell which copies go so that ``nbytes`` fit where ``free`` are left; None: none suffice.

    ``copies`` are in the order in which they were staged; those in use are never chosen.
    """
    previous = _previous(copies, in_use)
    rest = [copy for copy in copies if copy.name not in in_use and copy is not previous]
    if nbytes <= free + _sum(rest):
        return tuple(copy.name for copy in rest)
    if previous is not None and nbytes <= free + _sum(rest) + previous.nbytes:
        return tuple(copy.name for copy in (*rest, previous))
    return None


def _previous(
    copies: Sequence[StagedCopy[Name]], in_use: frozenset[Name]
) -> StagedCopy[Name] | None:
    """Find the version that was served last before the present one."""
    served = [c for c in copies if c.used_at is not None and c.name not in in_use]
    return max(served, key=lambda copy: copy.used_at or 0.0, default=None)


def _sum(copies: Sequence[StagedCopy[Any]]) -> int:
    return sum(copy.nbytes for copy in copies)
