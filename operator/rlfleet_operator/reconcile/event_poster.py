"""Posts a fleet's Events beside its loop: commands never wait for them.

An Event that cannot be posted is logged and given up. Some are left out when an API server
answers so slowly that too many wait.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable

from rlfleet_operator.core.model.world import Identity
from rlfleet_operator.core.status.events import KubeEvent
from rlfleet_operator.kube import apply
from rlfleet_operator.kube.client import Kube

_log = logging.getLogger(__name__)
_WAITING = 64
"""How many Events may wait; of more the oldest are left out."""
_FAREWELL_S = 1.0
"""How long those that wait may hold up the end of their driver."""


class Announcements:
    """The Events of one fleet, posted one after the other."""

    def __init__(self, kube: Kube) -> None:
        """Begin with none."""
        self._kube = kube
        self._waiting: deque[tuple[Identity, KubeEvent]] = deque()
        self._posting: asyncio.Task[None] | None = None

    def post(self, about: Identity, events: Iterable[KubeEvent]) -> None:
        """Have these posted after those that wait already."""
        self._waiting.extend((about, event) for event in events)
        surplus = max(0, len(self._waiting) - _WAITING)
        for _ in range(surplus):
            self._waiting.popleft()
        if surplus:
            extra = {"namespace": about.namespace, "fleet": about.name, "left_out": surplus}
            _log.warning("Dropped Events that waited too long", extra=extra)
        if self._waiting and (self._posting is None or self._posting.done()):
            self._posting = asyncio.create_task(self._post())

    async def _post(self) -> None:
        while self._waiting:
            await apply.post_event(self._kube, *self._waiting.popleft())

    async def close(self) -> None:
        """Post what waits, for a moment, and end."""
        if self._posting is None:
            return
        _, late = await asyncio.wait({self._posting}, timeout=_FAREWELL_S)
        for task in late:
            task.cancel()
        await asyncio.gather(self._posting, return_exceptions=True)
