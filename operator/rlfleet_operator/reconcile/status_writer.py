"""Writes a fleet's status in a task of its own, so that no command waits for the API server.

Workers wait behind closed gates between the commands of a Barrier. One write at a time, and for 3 s
no command of a recorded rollout waits for it. Its error is raised in the loop's next pass, and a
write that is overdue must stop the loop: then no command is sent until status is written.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from rlfleet_operator.core.model.world import Raw
from rlfleet_operator.errors import Conflict
from rlfleet_operator.kube.client import KubeClient, fleet_path

_OVERDUE_S = 3.0
_ATTEMPTS = 5


async def write_status(
    kube: KubeClient, raw: Raw, status: Raw, attempts: int = _ATTEMPTS
) -> dict[str, Any]:
    """Merge a status into the object that it was computed from; return what the server made of it.

    Others may write labels or annotations many times a second. Only another spec or status makes
    this status outdated, and raises Conflict.
    """
    about = raw["metadata"]
    path = fleet_path(about["namespace"], about["name"])
    body = {"metadata": {"resourceVersion": about["resourceVersion"]}, "status": status}
    try:
        return await kube.patch(path + "/status", body)
    except Conflict:
        if attempts == 1:
            raise
        newer = await kube.get(path)
        if _content(newer) != _content(raw):
            raise
    return await write_status(kube, newer, status, attempts - 1)


def _content(raw: Raw) -> tuple[Any, ...]:
    """Return what a status depends on, without what others may write at any time."""
    about = [raw["metadata"].get(name) for name in ("uid", "generation", "deletionTimestamp")]
    return *about, raw.get("status") or {}


class StatusWriter:
    """The write under way, if there is one."""

    def __init__(self, done: Callable[[], None]) -> None:
        """Call ``done`` after each write."""
        self._done = done
        self._task: asyncio.Task[None] | None = None
        self._begun = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether a write has not ended, or its error was not raised yet."""
        return self._task is not None

    def begin(self, write: Coroutine[Any, Any, None]) -> None:
        """Start a write; none may be under way."""
        self._task, self._begun = asyncio.create_task(write), time.monotonic()
        self._task.add_done_callback(lambda _: self._done())

    async def settle(self) -> None:
        """Raise the error of a write that has ended; wait for one that is overdue."""
        task = self._task
        if task is None:
            return
        if task.done() or time.monotonic() - self._begun > _OVERDUE_S:
            try:
                await task
            finally:
                self._task = None

    async def end(self) -> None:
        """Wait for the write under way, as long as for any other, whatever comes of it."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=_OVERDUE_S)
        await self.close()

    async def close(self) -> None:
        """Cancel the write under way."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
