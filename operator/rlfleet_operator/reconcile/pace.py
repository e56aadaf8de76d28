"""How long a driver rests after a pass, so that its fleet takes a bounded share of the CPU.

Each pass looks at every worker, so the passes of a large fleet cost most of a rollout. A pass takes
longer by the clock while others use the CPU too, and then the longer rest leaves them more of it.

It must stay true that the clock counts within a bound. By the clock alone, a process that was
stopped for 12 s within a pass, as a busy node or a suspended machine does, would rest for 36 s or
108 s.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

_SHARE, _LARGE_SHARE = 3.0, 9.0
"""The rest as a multiple of a pass: one fleet takes at most 1/4 of the CPU, a large one 1/10."""
_LARGE = 400
"""Workers of a large fleet."""
_MOST = 3.0
"""The clock's time counts up to this multiple of the CPU's."""


class Pace:
    """The time of one driver's current pass."""

    def __init__(self) -> None:
        """Start without a pass."""
        self.workers = 0
        """Of the fleet, as the last pass observed it."""
        self._spent_s = 0.0

    def begin(self) -> None:
        """Begin a pass."""
        self._spent_s = 0.0

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the time of a block that awaits nothing."""
        begun, cpu = time.monotonic(), time.thread_time()
        try:
            yield
        finally:
            cpu_s = time.thread_time() - cpu
            self._spent_s += min(time.monotonic() - begun, _MOST * cpu_s)

    @property
    def rest_s(self) -> float:
        """How long to rest after the pass."""
        return self._spent_s * (_LARGE_SHARE if self.workers >= _LARGE else _SHARE)
