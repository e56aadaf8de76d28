"""How long to wait before what failed is tried again: twice as long each time. Pure."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

_DOUBLINGS = 16
"""A float has no room for the powers of what fails for hours."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """The waits after failures in a row; iterated, it yields them without end."""

    first_s: float
    longest_s: float
    well_s: float = math.inf
    """A failure of what ran for so long is a first one again."""

    def __iter__(self) -> Iterator[float]:
        return map(self.pause_s, count(1))

    def pause_s(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row, of which there is one."""
        return min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, _DOUBLINGS))

    def failed(self, failures: int, ran_s: float) -> int:
        """Return how many failures there are in a row with this one, of what ran for so long."""
        return 1 if ran_s >= self.well_s else failures + 1
