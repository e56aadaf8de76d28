"""Which staged versions make room for the next one. Pure.

Kept are the version that the engine holds, the one before it for a way back, and the
next. It must stay true that nothing goes that the engine holds or a change needs, and
that nothing goes at all when it would not suffice.
"""

from collections.abc import Sequence
from dataclasses import dataclass

_PAGE = 4096
_BESIDE = 64 * 1024
"""What a staged version takes besides its files: its record and its directory."""


@dataclass(frozen=True, slots=True)
class StagedCopy:
    """One staged version, as far as room is concerned."""

    version: str
    nbytes: int
    proved_at: float | None = None
    """When the engine was last seen to serve it; None if it never was."""


def footprint(sizes: Sequence[int]) -> int:
    """Tell how much room files of these sizes take, as a kubelet measures it."""
    return sum(-(-size // _PAGE) * _PAGE for size in sizes) + _BESIDE


def evictions(
    copies: Sequence[StagedCopy], needed: frozenset[str], nbytes: int, free: int
) -> tuple[str, ...] | None:
    """Tell which versions go so that ``nbytes`` fit where ``free`` are left; None: none suffice.

    ``copies`` are in the order in which they were staged; ``needed`` are never chosen.
    """
    previous = _previous(copies, needed)
    rest = [copy for copy in copies if copy.version not in needed and copy is not previous]
    if nbytes <= free + _sum(rest):
        return tuple(copy.version for copy in rest)
    if previous is not None and nbytes <= free + _sum(rest) + previous.nbytes:
        return tuple(copy.version for copy in (*rest, previous))
    return None


def _previous(copies: Sequence[StagedCopy], needed: frozenset[str]) -> StagedCopy | None:
    """Find the version that was served last before the present one."""
    served = [c for c in copies if c.proved_at is not None and c.version not in needed]
    return max(served, key=lambda copy: copy.proved_at or 0.0, default=None)


def _sum(copies: Sequence[StagedCopy]) -> int:
    return sum(copy.nbytes for copy in copies)
