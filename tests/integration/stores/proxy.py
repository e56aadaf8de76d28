"""A proxy before the store that injects faults: what a network and a busy store do to reads."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

_OWN = frozenset({"connection", "keep-alive", "transfer-encoding"})
_PIECE = 4096
_TAG = '"0123456789abcdef"'
FAULTS = (
    "latency",
    "error 500",
    "error 503",
    "too many",
    "slow",
    "half",
    "hang up",
    "other tag",
    "no range",
    "expired",
    "denied",
    "redirect",
)
_REFUSALS = {
    "error 500": (500, "InternalError"),
    "error 503": (503, "SlowDown"),
    "too many": (429, "TooManyRequests"),
    "expired": (400, "ExpiredToken"),
    "denied": (403, "AccessDenied"),
    "redirect": (301, "PermanentRedirect"),
}
SECRET = "the-session-token-of-this-worker"
"""What a store quotes in its refusals, and no message may hold."""


@dataclass
class StoreProxy:
    """What the proxy does to which requests; a test changes it as it likes."""

    target: str
    fault: str = ""
    strikes: Callable[[web.BaseRequest], bool] = lambda _: True
    """Returns whether a request meets the fault."""
    most: float = float("inf")
    """So many requests meet it, then none."""
    url: str = ""
    struck: int = 0
    seen: list[str] = field(default_factory=list)
    sent: Counter[str] = field(default_factory=Counter)
    """Bytes of the bodies that were forwarded, by method and path."""
    statuses: list[int] = field(default_factory=list)
    """Of the replies that were forwarded."""
    before: Callable[[web.BaseRequest], None] = lambda _: None
    """Called before a request is forwarded."""

    def inject(self, fault: str, *, most: float = float("inf"), only: str = "") -> None:
        """Strike requests whose method and path contain a text."""
        self.fault, self.most, self.struck = fault, most, 0
        self.strikes = lambda request: only in f"{request.method} {request.path_qs}"

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Forward a request, or do something to it."""
        body = await request.read()
        self.seen.append(f"{request.method} {request.path_qs}")
        self.before(request)
        fault = ""
        if self.fault and self.struck < self.most and self.strikes(request):
            self.struck += 1
            fault = self.fault
        if fault in _REFUSALS:
            return _refusal(*_REFUSALS[fault])
        if fault == "hang up":
            return _cut(request)
        if fault == "latency":
            await asyncio.sleep(0.5)
        return await self._forward(request, body, fault)

    async def _forward(
        self, request: web.BaseRequest, body: bytes, fault: str
    ) -> web.StreamResponse:
        headers = {name: text for name, text in request.headers.items() if name.lower() not in _OWN}
        if fault == "no range":
            headers.pop("Range", None)
        async with (
            aiohttp.ClientSession(auto_decompress=False) as http,
            http.request(
                request.method,
                self.target + request.raw_path,
                headers=headers,
                data=body or None,
                skip_auto_headers=("Content-Type", "User-Agent", "Accept", "Accept-Encoding"),
            ) as reply,
        ):
            kept = {n: text for n, text in reply.headers.items() if n.lower() not in _OWN}
            if fault == "other tag":
                kept |= {name: _TAG for name in kept if name.lower() == "etag"}
            self.statuses.append(reply.status)
            response = web.StreamResponse(status=reply.status, headers=kept)
            await response.prepare(request)
            data = await reply.read()
            self.sent[f"{request.method} {request.path_qs}"] += len(data)
            return await _passed(request, response, data, fault)


async def _passed(
    request: web.BaseRequest, response: web.StreamResponse, data: bytes, fault: str
) -> web.StreamResponse:
    if request.method == "HEAD":
        return response
    if fault == "half":
        await response.write(data[: len(data) // 2])
        return _cut(request)
    pieces: Iterator[bytes] = (data[at : at + _PIECE] for at in range(0, len(data), _PIECE))
    for piece in pieces:
        await response.write(piece)
        if fault == "slow":
            await asyncio.sleep(0.05)
    return response


def _cut(request: web.BaseRequest) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _refusal(status: int, code: str) -> web.Response:
    body = f"<Error><Code>{code}</Code><Message>no</Message><Token-0>{SECRET}</Token-0></Error>"
    return web.Response(status=status, body=body.encode(), content_type="application/xml")


@contextmanager
def proxied(target: str) -> Iterator[StoreProxy]:
    """Run a proxy in a thread of its own, because readers block theirs."""
    proxy = StoreProxy(target)
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(_listening(loop, proxy))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        asyncio.run_coroutine_threadsafe(_ended(*server), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _listening(
    loop: asyncio.AbstractEventLoop, proxy: StoreProxy
) -> tuple[asyncio.Server, web.Server]:
    handler = web.Server(proxy.answer, access_log=None)
    server = await loop.create_server(handler, "127.0.0.1", 0)
    proxy.url = "http://{}:{}".format(*server.sockets[0].getsockname())
    return server, handler


async def _ended(server: asyncio.Server, handler: web.Server) -> None:
    server.close()
    await handler.shutdown(0.1)
    await asyncio.sleep(0.05)
