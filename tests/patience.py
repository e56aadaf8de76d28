"""Time on a machine that, under load, now and then stands still for seconds.

All of it does then, product and test alike, and its clocks continue. A promise about time is
kept or broken in the time that the machine ran.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

TRIES = 20
T = TypeVar("T")


async def seconds_until(
    is_so: Callable[[], Awaitable[bool]], limit_s: float = 30.0, turn_s: float = 0.3
) -> float:
    """Wait until it is so; return how long that took.

    Each look counts for ``turn_s`` at most. A slow one is looked at often, and that adds
    up; a standstill is one look.
    """
    took_s, looked = 0.0, time.monotonic()
    while True:
        is_done = await is_so()
        now = time.monotonic()
        took_s, looked = took_s + min(now - looked, turn_s), now
        if is_done:
            return took_s
        assert took_s < limit_s, f"not within {limit_s} s"
        await asyncio.sleep(turn_s / 10)


async def undisturbed(attempt: Callable[[], Awaitable[T | None]]) -> T:
    """Return what the first try found that no standstill spoilt; a spoilt one finds None."""
    for _try in range(TRIES):
        if (found := await attempt()) is not None:
            return found
    raise AssertionError(f"the machine stood still in each of {TRIES} tries")


class Signs:
    """Requests one after the other, and how long their receiver may have received nothing."""

    def __init__(self) -> None:
        self.gaps: list[float] = []
        """Each from when one was sent to when the next was answered: no less than it was."""
        self._sent: float | None = None

    @property
    def longest_s(self) -> float:
        """The longest gap so far."""
        return max(self.gaps, default=0.0)

    @property
    def quiet_s(self) -> float:
        """How long ago the last one was sent, which no gap has yet."""
        return 0.0 if self._sent is None else time.monotonic() - self._sent

    async def give(self, request: Awaitable[T]) -> T:
        """Wait for a request's answer."""
        before, self._sent = self._sent, time.monotonic()
        answer = await request
        if before is not None:
            self.gaps.append(time.monotonic() - before)
        return answer


def stalls(moments: Sequence[float], longer_than_s: float) -> int:
    """Count the intervals of steady work that were longer, because the machine stood still."""
    return sum(after - before > longer_than_s for before, after in pairwise(moments))


async def given_up(*tasks: asyncio.Future[Any]) -> None:
    """Cancel requests and wait for their ends: one that only ends later is another test's error."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
