"""What the decoders of all threads may hold together.

It must stay true that no chain, however long and whatever its frames say, makes the sidecar hold
more than this and one tensor's decoders.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

LIMIT = 512 * 1024 * 1024
"""A tensor that 32 deltas change takes up to some 600 MiB, if their windows are the largest."""


class MemoryBudget:
    """Bytes that threads take and give back."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._taken = 0
        self._changed = Condition()

    @contextmanager
    def taken(self, nbytes: int) -> Iterator[None]:
        """Take bytes, once as many are free; what exceeds the limit is taken alone."""
        with self._changed:
            self._changed.wait_for(lambda: not self._taken or self._taken + nbytes <= self._limit)
            self._taken += nbytes
        try:
            yield
        finally:
            with self._changed:
                self._taken -= nbytes
                self._changed.notify_all()
