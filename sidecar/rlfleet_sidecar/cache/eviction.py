"""Which staged versions or adapters are evicted for the next one. Pure.

Versions in use stay, and if possible the one before, for a rollback. It must stay true that
nothing in use is evicted, and nothing at all if it would not be enough.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

_PAGE = 4096
_OVERHEAD = 64 * 1024
"""Bytes of a copy's record and directory."""
Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True, slots=True)
class StagedCopy(Generic[Name]):
    """The size and last use of one version or adapter."""

    name: Name
    nbytes: int
    used_at: float | None = None
    """When the engine last served it; None if it never did, or if that does not count."""


def footprint(sizes: Sequence[int]) -> int:
    """Return the bytes that files of these sizes occupy, as a kubelet measures them."""
    return sum(-(-size // _PAGE) * _PAGE for size in sizes) + _OVERHEAD


def evictions(
    copies: Sequence[StagedCopy[Name]], in_use: frozenset[Name], nbytes: int, free: int
) -> tuple[Name, ...] | None:
    """Return the copies to evict so that ``nbytes`` fit into ``free``; None if impossible.

    ``copies`` are in the order of their staging.
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
    """Return the version that was served before the current one."""
    served = [c for c in copies if c.used_at is not None and c.name not in in_use]
    return max(served, key=lambda copy: copy.used_at or 0.0, default=None)


def _sum(copies: Sequence[StagedCopy[Any]]) -> int:
    return sum(copy.nbytes for copy in copies)
