"""The long requests by which sidecars send their news, line by line, and the faults of those.

A fault strikes the news of one worker, of the request under way and of later ones: the news that
it hits need not have begun.
"""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web

MODES = frozenset(
    {
        "news-cut",
        "news-lost",
        "news-frozen",
        "news-late",
        "news-repeated",
        "news-malformed",
        "news-refused",
    }
)
_ONCE = frozenset({"news-cut", "news-lost", "news-malformed"})
"""Each ends the request, so the next one is whole."""
_LATE_S = 1.0
_BLIND_S = 1.0
_LOOK_S = 0.5
"""How soon a request ends whose operator is gone."""


def instead(mode: str | None, line: bytes, before: bytes) -> bytes:
    """Return the bytes that the operator gets for a line; ``before`` is the report before it.

    An empty line is a sign of life. It says: as in the last line.
    """
    if mode == "news-cut":
        return line[: len(line) // 2]
    if mode in {"news-lost", "news-frozen"}:
        return b""
    if mode == "news-malformed" and line.strip():
        return b'{"stage": \n'
    if mode == "news-repeated" and line.strip():
        # The older one comes last, and the operator must not believe it.
        return line + line + before
    return line


class News:
    """One operator's long requests to all workers."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http
        self._modes: dict[str, str] = {}
        """The fault of each worker's news, by address."""

    def strike(self, mode: str, address: str) -> None:
        """Break this worker's news from now on."""
        self._modes[address] = mode

    async def pass_on(
        self, request: web.BaseRequest, address: str, url: str, headers: dict[str, str]
    ) -> web.StreamResponse:
        """Forward a long request until one of both ends is gone."""
        if self._modes.get(address) == "news-refused":
            # As a sidecar of an earlier release, which is asked for its state instead.
            return web.Response(status=404)
        stream = web.StreamResponse()
        try:
            async with self._http.get(url, headers=headers) as reply:
                stream.set_status(reply.status)
                stream.content_type = reply.content_type
                await stream.prepare(request)
                await self._pass(request, stream, address, reply)
        except (aiohttp.ClientError, ConnectionError):
            pass
        # Neither end closes in order: a pod's process has ended, or a fault breaks the connection.
        if request.transport is not None:
            request.transport.abort()
        return stream

    async def _pass(
        self,
        request: web.BaseRequest,
        stream: web.StreamResponse,
        address: str,
        reply: aiohttp.ClientResponse,
    ) -> None:
        loop, before = asyncio.get_running_loop(), b""
        async for arrived_at, line in _lines(reply, request):
            mode = self._modes.get(address)
            if mode == "news-refused":
                return
            if mode == "news-late":
                await asyncio.sleep(max(0.0, arrived_at + _LATE_S - loop.time()))
            if passed := instead(mode, line, before):
                await stream.write(passed)
            before = line if line.strip() else before
            if mode in _ONCE and line.strip():
                del self._modes[address]
                await asyncio.sleep(_BLIND_S if mode == "news-lost" else 0)
                return


async def _lines(
    reply: aiohttp.ClientResponse, request: web.BaseRequest
) -> AsyncIterator[tuple[float, bytes]]:
    """Yield whole lines and when they arrived, until one end of the connection is gone."""
    rest = b""
    while request.transport is not None and not request.transport.is_closing():
        try:
            async with asyncio.timeout(_LOOK_S):
                piece = await reply.content.readany()
        except TimeoutError:
            continue
        if not piece:
            return
        arrived_at = asyncio.get_running_loop().time()
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield arrived_at, line + b"\n"
