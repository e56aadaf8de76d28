"""Posts a fleet's Events in a task of its own, so that commands never wait for them.

An Event that cannot be posted is logged and dropped. If the API server is slow and too many
Events wait, the oldest are dropped.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable

from rlfleet_operator.core.model.world import Identity
from rlfleet_operator.core.status.events import KubeEvent
from rlfleet_operator.kube import apply
from rlfleet_operator.kube.client import KubeClient

_log = logging.getLogger(__name__)
_WAITING = 64
"""The length of the queue."""
_FAREWELL_S = 1.0
"""How long a driver that ends waits for its queue."""


class EventPoster:
    """The queue of one fleet's Events."""

    def __init__(self, kube: KubeClient) -> None:
        """Start with an empty queue."""
        self._kube = kube
        self._waiting: deque[tuple[Identity, KubeEvent]] = deque()
        self._posting: asyncio.Task[None] | None = None

    def post(self, about: Identity, events: Iterable[KubeEvent]) -> None:
        """Add Events to the queue."""
        self._waiting.extend((about, event) for event in events)
        surplus = max(0, len(self._waiting) - _WAITING)
        for _ in range(surplus):
            self._waiting.popleft()
        if surplus:
            extra = {"namespace": about.namespace, "fleet": about.name, "left_out": surplus}
            _log.warning("Dropped Events: too many are waiting", extra=extra)
        if self._waiting and (self._posting is None or self._posting.done()):
            self._posting = asyncio.create_task(self._post())

    async def _post(self) -> None:
        while self._waiting:
            await apply.post_event(self._kube, *self._waiting.popleft())

    async def close(self) -> None:
        """Post the queue, for at most a second, and end."""
        if self._posting is None:
            return
        _, late = await asyncio.wait({self._posting}, timeout=_FAREWELL_S)
        for task in late:
            task.cancel()
        await asyncio.gather(self._posting, return_exceptions=True)
