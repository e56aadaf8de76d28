"""Does what flows yield, waiting or awaiting: the part that all clients share."""

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import httpx

from rlfleet.fleet.flows import Call, CallOutcome, Delay, Flow, Found, RawReply
from rlfleet.fleet.settings import lost_by, request_of


def run(flow: Flow[Found], take: Callable[[Call | Delay], CallOutcome]) -> Found:
    """Do each step of a flow by ``take``, and return what the flow returns."""
    outcome: CallOutcome = None
    while True:
        try:
            step = flow.send(outcome)
        except StopIteration as end:
            found: Found = end.value
            return found
        outcome = take(step)


class FlowRunner:
    """Runs flows over one httpx client, and closes it."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. What was requested continues."""
        self._client.close()

    def _run(self, flow: Flow[Found]) -> Found:
        return run(flow, self._take)

    def _take(self, step: Call | Delay) -> CallOutcome:
        if isinstance(step, Delay):
            time.sleep(step.seconds)
            return None
        try:
            reply = self._client.request(**request_of(step))
        except httpx.TransportError as error:
            return lost_by(error)
        return RawReply(reply.status_code, reply.content)


class AsyncFlowRunner:
    """The same for asyncio."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. What was requested continues."""
        await self._client.aclose()

    async def _run(self, flow: Flow[Found]) -> Found:
        outcome: CallOutcome = None
        while True:
            try:
                step = flow.send(outcome)
            except StopIteration as end:
                found: Found = end.value
                return found
            outcome = await self._take(step)

    async def _take(self, step: Call | Delay) -> CallOutcome:
        if isinstance(step, Delay):
            await asyncio.sleep(step.seconds)
            return None
        try:
            reply = await self._client.request(**request_of(step))
        except httpx.TransportError as error:
            return lost_by(error)
        return RawReply(reply.status_code, reply.content)
