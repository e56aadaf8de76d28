"""When a moment of the steady clock is by the wall clock.

Waits are measured by the steady clock, and status names their ends by the wall clock.

It must stay true that a step of the wall clock neither lengthens nor shortens a wait.
"""

import time
from collections.abc import Callable

_STEP_S = 0.5
"""A wall clock that is further off than this was set; less is drift, and is left alone so that
what status says of a moment does not change with every pass."""


class Wall:
    """Tells the wall clock's time of the steady clock's moments."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Go by these two clocks."""
        self._wall, self._steady = wall, steady
        self._apart = wall() - steady()

    def in_s(self, seconds: float) -> float:
        """Return the moment of the steady clock in that many seconds."""
        return self._steady() + seconds

    def to(self, time: float) -> float:
        """Return the moment of the steady clock at which the wall clock shows this, as it goes."""
        return self._steady() + time - self._wall()

    def of(self, moment: float) -> float:
        """Return the seconds since the epoch at a moment of the steady clock."""
        apart = self._wall() - self._steady()
        if abs(apart - self._apart) > _STEP_S:
            self._apart = apart
        return moment + self._apart
