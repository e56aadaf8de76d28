"""One prepare under way: how far it is, how long it may take, and whether it still counts.

Shared by the loop, which waits and tells, and the thread that reads and copies.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Progress
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.timeouts import in_thread

LEAVE_S = 5.0
"""How long one that shall end may take to notice: a hanging read must not hold up the next."""
_YIELD_S = 0.02
_Result = TypeVar("_Result")


class SupersededError(SidecarError):
    """Another prepare took this one's place: nobody's fault, and no refusal."""


class Work:
    """What a prepare asks at every chunk that it reads."""

    def __init__(
        self, version: str, timeout_s: float, yields: Callable[[], bool] = lambda: False
    ) -> None:
        self.version = version
        self.waiting_for: str | None = None
        self.total = 0
        self._done = 0
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._yields = yields
        """Whether something more urgent goes on: then it stands still."""
        self._why: str | None = None
        self._ended = asyncio.Event()
        self._limit: asyncio.Timeout | None = None
        """Of the thread that reads."""

    @property
    def left_s(self) -> float:
        """How much time is left."""
        return self._deadline - time.monotonic()

    @property
    def progress(self) -> Progress:
        """Tell how far it is."""
        return Progress(
            version=self.version,
            bytes_done=self._done,
            bytes_total=self.total,
            waiting_for=self.waiting_for,
        )

    def supersede(self, why: str) -> None:
        """Have it end at its next chunk or look; to be called in the loop."""
        self._why = self._why or why
        self._ended.set()
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + LEAVE_S)

    async def carried_out(self, read: Callable[[], _Result]) -> _Result:
        """Read in a thread, which ends itself at a chunk; one that comes to none is left behind.

        On a mount whose server is gone it would never end, nor whoever waits for it.
        """
        limit = self._limit = asyncio.timeout(max(0.0, self.left_s) + LEAVE_S)
        try:
            async with limit:
                return await in_thread(read)
        except TimeoutError as error:
            if not limit.expired():
                # The volume's own word.
                raise
            self.demand_wanted()
            overdue = self._overdue()
            # If the thread ever goes on, nobody waits for what it reads.
            self.supersede(overdue.message)
            raise overdue from error
        finally:
            self._limit = None

    async def rest(self, seconds: float) -> None:
        """Wait, but not after it was superseded."""
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            pass
        self.demand_wanted()

    def advance(self, nbytes: int) -> None:
        """Count bytes that are done; raises if it shall not or may not go on."""
        self._done += nbytes
        while True:
            self._demand_time()
            if not self._yields():
                return
            time.sleep(_YIELD_S)

    def _demand_time(self) -> None:
        self.demand_wanted()
        if self.left_s < 0:
            raise self._overdue()

    def _overdue(self) -> SidecarError:
        return SidecarError(
            Code.CHECKPOINT_UNREADABLE,
            f"{self._done} of {self.total} bytes were read after {self._timeout_s:g} s: look at"
            " the volume, or raise rollout.timeouts.prepareSeconds",
        )

    def demand_wanted(self) -> None:
        """Raise if another prepare took its place."""
        if self._why is not None:
            raise SupersededError(Code.BUSY, self._why)
