"""The client of a fleet, for asyncio."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from rlfleet.fleet import flows
from rlfleet.fleet.replies import ChangeResult, FleetState
from rlfleet.fleet.runner import AsyncFlowRunner
from rlfleet.fleet.settings import (
    DEFAULT_S,
    UPDATE_S,
    FleetPauseMode,
    headers_of,
    root_of,
    verification_of,
)
from rlfleet.fleet.transport import OneRequestTransport


class AsyncFleetClient(AsyncFlowRunner):
    """A FleetClient whose methods are awaited. What was requested survives their cancellation."""

    def __init__(self, url: str, token: str | None = None, ca: Path | str | None = None) -> None:
        """As FleetClient."""
        client = httpx.AsyncClient(
            base_url=root_of(url),
            headers=headers_of(url, token),
            transport=OneRequestTransport(verification_of(ca)),
            trust_env=False,
        )
        super().__init__(client)

    async def update_weights(
        self,
        version: str,
        timeout_s: float = UPDATE_S,
        progress: flows.OnProgress = lambda _: None,
    ) -> ChangeResult:
        """As FleetClient.update_weights."""
        return await self._run(flows.update(version, timeout_s, time.monotonic, progress))

    async def pause(
        self,
        mode: FleetPauseMode = "keep",
        *,
        clear_cache: bool = True,
        ttl_s: float | None = None,
        timeout_s: float = DEFAULT_S,
    ) -> ChangeResult:
        """As FleetClient.pause."""
        fields = flows.pause_fields(mode, clear_cache=clear_cache, ttl_s=ttl_s)
        return await self._run(flows.changed("pause", fields, timeout_s, time.monotonic))

    async def resume(self, timeout_s: float = DEFAULT_S) -> ChangeResult:
        """As FleetClient.resume."""
        return await self._run(flows.changed("resume", {}, timeout_s, time.monotonic))

    async def flush_cache(self, timeout_s: float = DEFAULT_S) -> ChangeResult:
        """As FleetClient.flush_cache."""
        return await self._run(flows.changed("flush_cache", {}, timeout_s, time.monotonic))

    @asynccontextmanager
    async def paused(
        self,
        mode: FleetPauseMode = "keep",
        *,
        clear_cache: bool = True,
        ttl_s: float | None = None,
        timeout_s: float = DEFAULT_S,
    ) -> AsyncIterator[ChangeResult]:
        """As FleetClient.paused."""
        result = await self.pause(mode, clear_cache=clear_cache, ttl_s=ttl_s, timeout_s=timeout_s)
        try:
            yield result
        finally:
            await self.resume(timeout_s)

    async def state(self, timeout_s: float = DEFAULT_S) -> FleetState:
        """As FleetClient.state."""
        return await self._run(flows.state(timeout_s, time.monotonic))

    async def wait(self, version: str, timeout_s: float = UPDATE_S) -> FleetState:
        """As FleetClient.wait."""
        return await self._run(flows.wait(version, timeout_s, time.monotonic))
