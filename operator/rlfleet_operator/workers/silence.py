"""Ends the watches of a fleet that are silent, by one look at all of them every few seconds.

The look also finds commands whose answer may be lost: no worker is asked only because its change
takes long, as that worker's news come by themselves.

A timer for each watch, started again by each sign of life, would cost more than what it shows.
"""

import asyncio
import time
from collections.abc import Mapping

from rlfleet_operator.workers.connection import WorkerConnection

_LOOK_S = 5.0
SILENCE_S = 15.0
"""A watch without a sign of life for so long has ended; one comes every paths.SIGN_S."""


class SilenceWatch:
    """The task that looks, while the fleet has contacts."""

    def __init__(self, contacts: Mapping[str, WorkerConnection]) -> None:
        """Look at these contacts, whichever they are at that time."""
        self._contacts = contacts
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begin to look, unless that has begun; raises the defect that ended it."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())
        elif self._task.done():
            self._task.result()

    async def close(self) -> None:
        """End the task."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            now = time.monotonic()
            for contact in self._contacts.values():
                _look(contact, now)


def _look(contact: WorkerConnection, now: float) -> None:
    watch = contact.watch
    if watch is None:
        return
    if contact.client.has_signs():
        contact.receive(now)
    if contact.has_lost_answer(now):
        contact.hurried.set()
    if contact.is_replaced(watch) or now - watch.received_at > SILENCE_S:
        contact.watch = None
        watch.limit.reschedule(asyncio.get_running_loop().time())
