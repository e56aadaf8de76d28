"""A request that waits, or whose body is read, before vLLM gets it.

Only ``receive`` shows a disconnect or the body, and it returns each message once. So all messages
are kept and passed to vLLM afterwards in order, including a ``receive`` under way.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from rlfleet_engine.asgi import Scope, Send
from rlfleet_engine.gate.gate import Gate

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_BODY = "http.request"
_LEAVING = "http.disconnect"


class TooLargeError(Exception):
    """A body exceeds RLFLEET_MAX_BODY_BYTES."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"request body too large (limit {limit} bytes); send a smaller one")


class HeldRequest:
    """Replaces the server's ``receive`` for one request."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._kept: deque[Message] = deque()
        self._pending: asyncio.Future[Message] | None = None
        self._size = 0
        """Bytes received while the gate was closed."""

    async def until_open(self, gate: Gate, limit: int, *, on_trial: bool = False) -> bool:
        """Wait until the gate is not closed; False if the client disconnects first.

        ``on_trial``: or until it admits requests during a trial.
        Raises TooLargeError once more than ``limit`` bytes of the body are kept.
        """
        opened = asyncio.ensure_future(gate.opened(on_trial=on_trial))
        try:
            while not opened.done():
                pending = self._pending = self._pending or asyncio.ensure_future(self._receive())
                either: list[asyncio.Future[Any]] = [opened, pending]
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if pending.done():
                    self._pending = None
                    self._kept.append(pending.result())
                    if self._kept[-1]["type"] == _LEAVING:
                        return False
                    self._size += len(self._kept[-1].get("body", b""))
                    if self._size > limit:
                        raise TooLargeError(limit)
        finally:
            opened.cancel()
        return True

    async def body(self, limit: int) -> bytes:
        """Read and keep the body; after a disconnect, the part received until then.

        Raises TooLargeError after more than ``limit`` bytes, and reads no further.
        """
        taken: list[Message] = []
        pieces: list[bytes] = []
        size, more = 0, True
        while more:
            message = await self.receive()
            taken.append(message)
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > limit:
                raise TooLargeError(limit)
            more = message["type"] == _BODY and message.get("more_body", False)
        self._kept.extendleft(reversed(taken))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def replace(self, body: bytes) -> None:
        """Replace the body that was read, also by vLLM, which then reads it again."""
        rest = [message for message in self._kept if message["type"] != _BODY]
        self._kept = deque([{"type": _BODY, "body": body, "more_body": False}, *rest])

    async def receive(self) -> Message:
        """Return the kept messages, then new ones."""
        if self._kept:
            return self._kept.popleft()
        pending, self._pending = self._pending, None
        return await (pending if pending is not None else self._receive())

    def close(self) -> None:
        """Cancel a ``receive`` under way, after the reply or a disconnect."""
        if self._pending is not None:
            self._pending.cancel()
