"""Converts moments of the monotonic clock, which measures waits, to wall-clock time for status.

A step of the wall clock must neither lengthen nor shorten a wait.
"""

import time
from collections.abc import Callable

_STEP_S = 0.5
"""A larger offset means that the wall clock was set. Less is drift, which is ignored so that a
moment in status does not change with every pass."""


class WallClock:
    """The offset between monotonic clock and wall clock, with converters."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Measure the offset between these two clocks."""
        self._wall, self._steady = wall, steady
        self._apart = wall() - steady()

    def in_s(self, seconds: float) -> float:
        """Return the monotonic moment that many seconds from now."""
        return self._steady() + seconds

    def to(self, time: float) -> float:
        """Return the monotonic moment at which the wall clock will show ``time``."""
        return self._steady() + time - self._wall()

    def of(self, moment: float) -> float:
        """Return a monotonic moment as seconds since the epoch."""
        apart = self._wall() - self._steady()
        if abs(apart - self._apart) > _STEP_S:
            self._apart = apart
        return moment + self._apart
