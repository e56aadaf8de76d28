"""The progress, deadline and cancellation of one prepare.

Shared by the event loop, which waits and reports, and the threads, which read and copy.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Progress
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.timeouts import in_thread

LEAVE_S = 5.0
"""How long a superseded prepare may take to end; a hanging read must not delay the next."""
_YIELD_S = 0.02
_LEAST_S = 0.001
_Result = TypeVar("_Result")


class SupersededError(SidecarError):
    """Another prepare has replaced this one, which is no rejection of its version."""


class PrepareJob:
    """The state of a prepare, checked at every chunk that it reads."""

    def __init__(
        self, version: str, timeout_s: float, yields: Callable[[], bool] = lambda: False
    ) -> None:
        self.version = version
        self.waiting_for: str | None = None
        self.total = 0
        self._done = 0
        self._begun_at: float | None = None
        self._counting = threading.Lock()
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._yields = yields
        """Returns whether a change is under way, during which the thread waits."""
        self._why: str | None = None
        self._ended = asyncio.Event()
        self._limit: asyncio.Timeout | None = None
        """The timeout of the thread that reads."""

    @property
    def left_s(self) -> float:
        """Seconds until the deadline."""
        return self._deadline - time.monotonic()

    @property
    def progress(self) -> Progress:
        """The progress, for the report."""
        done, rate = self._done, None
        if self._begun_at is not None and done:
            rate = done / max(time.monotonic() - self._begun_at, _LEAST_S)
        return Progress(
            version=self.version,
            bytes_done=done,
            bytes_total=self.total,
            bytes_per_s=rate,
            left_s=None if rate is None else max(0, self.total - done) / rate,
            waiting_for=self.waiting_for,
        )

    def begin(self, total: int) -> None:
        """Begin to read so many bytes."""
        self.total, self._begun_at = total, time.monotonic()

    def supersede(self, why: str) -> None:
        """End it at its next chunk or check; called in the event loop."""
        self._why = self._why or why
        self._ended.set()
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + LEAVE_S)

    async def carried_out(self, read: Callable[[], _Result]) -> _Result:
        """Read in a thread, which ends at a chunk after the deadline.

        On a mount whose server is gone it never reaches one; then the thread is abandoned.
        """
        limit = self._limit = asyncio.timeout(max(0.0, self.left_s) + LEAVE_S)
        try:
            async with limit:
                return await in_thread(read)
        except TimeoutError as error:
            if not limit.expired():
                # A timeout of the volume, not this one.
                raise
            self.demand_wanted()
            overdue = self._overdue()
            # If the thread ever continues, its result is not needed.
            self.supersede(overdue.message)
            raise overdue from error
        finally:
            self._limit = None

    async def rest(self, seconds: float) -> None:
        """Wait; raises at once when it is superseded."""
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            pass
        self.demand_wanted()

    def advance(self, nbytes: int) -> None:
        """Count bytes; raises if it is superseded or over its deadline. For any thread."""
        with self._counting:
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
            f"prepare timed out ({self._done} of {self.total} bytes read in {self._timeout_s:g} s);"
            " check the volume, or raise rollout.timeouts.prepareSeconds",
        )

    def demand_wanted(self) -> None:
        """Raise if it is superseded."""
        if self._why is not None:
            raise SupersededError(Code.BUSY, self._why)
