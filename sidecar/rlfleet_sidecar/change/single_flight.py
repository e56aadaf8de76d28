"""One command at a time, to its end, whoever stays to hear it.

A repeat of the command under way joins it and gets the same answer; another one is
refused. The work is its own task: a caller that leaves does not cut it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import WorkerReport
from rlfleet_sidecar.errors import SidecarError


class FlightKey(NamedTuple):
    """What makes two commands the same."""

    what: str
    operation: str
    version: str


class _Work(NamedTuple):
    key: FlightKey
    task: asyncio.Task[WorkerReport]


class Flight:
    """Holds the command under way, if there is one."""

    def __init__(self) -> None:
        self._work: _Work | None = None

    @property
    def key(self) -> FlightKey | None:
        """Which command is under way."""
        return None if self._work is None else self._work.key

    async def join(
        self, key: FlightKey, work: Callable[[], Coroutine[Any, Any, WorkerReport]]
    ) -> WorkerReport:
        """Carry the command out, or wait for the same one that is under way."""
        if self._work is None:
            task = asyncio.create_task(work())
            self._work = _Work(key, task)
            task.add_done_callback(self._landed)
        elif self._work.key != key:
            busy = self._work.key
            raise SidecarError(
                Code.BUSY,
                f"{busy.what} of version {busy.version} (operation {busy.operation}) is under way",
            )
        return await asyncio.shield(self._work.task)

    async def landed(self) -> None:
        """Wait until no command is under way."""
        if self._work is not None:
            await asyncio.wait([self._work.task])

    def _landed(self, task: asyncio.Task[WorkerReport]) -> None:
        self._work = None
        # Whoever waited has the error; if nobody did, it is in the journal.
        if not task.cancelled():
            task.exception()
