"""A request that waits at the gate: it listens for its client's leaving and keeps the body.

To notice a disconnect one must receive, and what is received is gone. So whatever comes
while waiting is kept and handed to vLLM afterwards, in order, the receive that is still
under way included.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from rlfleet_engine.gate import Gate

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

_LEAVING = frozenset({"http.disconnect", "websocket.disconnect"})


class Held:
    """Stands in for the server's ``receive`` while a request waits and afterwards."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._kept: deque[Message] = deque()
        self._pending: asyncio.Future[Message] | None = None

    async def until_open(self, gate: Gate) -> bool:
        """Wait for the gate; False if the client left first."""
        opened = asyncio.ensure_future(gate.opened())
        try:
            while not opened.done():
                pending = self._pending = self._pending or asyncio.ensure_future(self._receive())
                either: list[asyncio.Future[Any]] = [opened, pending]
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if pending.done():
                    self._pending = None
                    self._kept.append(pending.result())
                    if self._kept[-1]["type"] in _LEAVING:
                        return False
        finally:
            opened.cancel()
        return True

    async def receive(self) -> Message:
        """Give what was kept, then what comes."""
        if self._kept:
            return self._kept.popleft()
        pending, self._pending = self._pending, None
        return await (pending if pending is not None else self._receive())

    def close(self) -> None:
        """Stop listening: the request was answered or its client left."""
        if self._pending is not None:
            self._pending.cancel()
