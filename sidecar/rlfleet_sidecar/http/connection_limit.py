"""Limits idle connections, so that a client with many cannot block the kubelet's probes.

uvicorn's own limit counts silent connections, and above it returns 503 even to the kubelet's
probes. It must stay true that every new connection is accepted: it replaces the connection
that has been idle for longest, never one with a request under way.
"""

import asyncio
from typing import Any

from rlfleet_contract.paths import WATCH_PATH
from rlfleet_sidecar.http.problems import Protocol

_QUIET = 256
"""Idle connections; a fleet's operator and trainers need a few."""
_SILENT_S = 10.0
"""How long a new connection may take until its first request's headers are complete."""
KEEP_ALIVE_S = 75
"""Longer than clients keep idle connections, so that none is closed under a request."""


def protocol(
    at_most: int = _QUIET, silent_s: float = _SILENT_S, keep_alive_s: float = KEEP_ALIVE_S
) -> type[Protocol]:
    """Return a protocol class whose connections share these limits."""
    quiet: dict[_Bounded, asyncio.TimerHandle] = {}

    class Bounded(_Bounded):
        _quiet = quiet
        _bounds = (at_most, silent_s, keep_alive_s)

    return Bounded


class _Bounded(Protocol):
    _quiet: dict["_Bounded", asyncio.TimerHandle]
    """Connections that wait for a request, the oldest first, with the timer that closes each."""
    _bounds: tuple[int, float, float]

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._begin_quiet(self._bounds[1])

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_busy():
            self._end_quiet()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._is_busy():
            # uvicorn's own keep-alive timer stops at the first byte of a request.
            self._begin_quiet(self._bounds[2])

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_quiet()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """End a watch too, which would otherwise delay the sidecar's end."""
        super().shutdown()
        if self._is_busy() and self.scope["path"] == WATCH_PATH:
            self.transport.close()

    def _is_busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _begin_quiet(self, seconds: float) -> None:
        self._end_quiet()
        if len(self._quiet) >= self._bounds[0]:
            next(iter(self._quiet)).close_quiet()
        self._quiet[self] = self.loop.call_later(seconds, self.close_quiet)

    def _end_quiet(self) -> None:
        timer = self._quiet.pop(self, None)
        if timer is not None:
            timer.cancel()

    def close_quiet(self) -> None:
        """Close a connection that waits for a request."""
        self._end_quiet()
        # A graceful close would wait for a peer that does not read.
        self.transport.abort()
