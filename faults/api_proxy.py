"""A proxy between the operator and the API server that injects faults: HTTP in, TLS out.

It forwards requests as a whole, and watches piece by piece. It reports every write to the
ledger, which returns the fault for this request or for the watches.
"""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import aiohttp
from aiohttp import web

from dev.kubernetes.apiserver import ControlPlane
from faults.ledger import WRITES, Ledger, api_key
from faults.plan import Side

_DROPPED = frozenset({"accept-encoding", "connection", "content-length", "host", "keep-alive"})
_TAKEN_OVER = frozenset({"connection", "content-length", "transfer-encoding"})
_DELAY_S = 1.0
_BLIND_S = 1.0
_PAST_S = 1.5
_WATCH_MODES = frozenset({"watch-dropped", "watch-frozen", "watch-gone", "time-travel"})
_REFUSALS = {
    "conflict": (409, "Conflict"),
    "forbidden": (403, "Forbidden"),
    "too-many": (429, "TooManyRequests"),
    "error-500": (500, "InternalError"),
    "error-503": (503, "ServiceUnavailable"),
}
_GONE = {
    "type": "ERROR",
    "object": {"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410},
}


class Answer(NamedTuple):
    """A whole reply of the API server."""

    status: int
    headers: dict[str, str]
    body: bytes

    def response(self) -> web.Response:
        """Make it ours."""
        return web.Response(status=self.status, headers=self.headers, body=self.body)


class _Watch:
    """One stream of events on its way to the operator."""

    def __init__(self, request: web.BaseRequest, stream: web.StreamResponse) -> None:
        self.request, self.stream = request, stream
        self.is_blind = False

    def cut(self) -> None:
        if self.request.transport is not None:
            self.request.transport.abort()

    async def end_gone(self) -> None:
        if not self.is_blind:
            self.is_blind = True
            await self.stream.write(json.dumps(_GONE).encode() + b"\n")
        self.cut_soon()

    def cut_soon(self) -> None:
        if self.request.transport is not None:
            self.request.transport.close()


class ApiProxy:
    """One operator's way to the API server."""

    def __init__(
        self, plane: ControlPlane, ledger: Ledger, crash: Callable[[], Awaitable[None]]
    ) -> None:
        """``crash`` kills the operator; the caller starts it again."""
        self._plane, self._ledger, self._crash = plane, ledger, crash
        self._tls = ssl.create_default_context(cafile=str(plane.ca))
        self._watches: set[_Watch] = set()
        self._first: dict[str, Answer] = {}
        """The first reply to each GET, as a stale API server would return it."""
        self._past_until = 0.0
        self._http: aiohttp.ClientSession
        self._server: asyncio.Server
        self._web: web.Server
        self.url = ""

    async def start(self) -> None:
        """Listen on a free port of loopback."""
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
        self._http = aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(None), auto_decompress=False
        )
        loop = asyncio.get_running_loop()
        self._web = web.Server(self._handle)
        self._server = await loop.create_server(self._web, "127.0.0.1", 0)
        self.url = "http://{}:{}".format(*self._server.sockets[0].getsockname())

    async def stop(self) -> None:
        """Hang up on everybody."""
        self._server.close()
        for watch in list(self._watches):
            watch.cut()
        await self._web.shutdown(0.05)
        await self._http.close()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.query.get("watch") in {"1", "true"}:
            return await self._watch(request)
        body = await request.read()
        if request.method not in WRITES:
            return await self._read(request)
        mode = self._ledger.strikes(Side.API, api_key(request.method, request.path, body))
        if mode in _REFUSALS:
            return _refusal(*_REFUSALS[mode])
        if mode == "kill-before":
            await self._crash()
            return _cut(request)
        if mode == "delayed":
            await asyncio.sleep(_DELAY_S)
        answer = await self._forward(request, body)
        if mode == "duplicate":
            answer = await self._forward(request, body)
        return await self._after(mode, request, answer)

    async def _after(
        self, mode: str | None, request: web.BaseRequest, answer: Answer
    ) -> web.StreamResponse:
        """Let happen what happens once the write is done."""
        if mode in {"kill-after", "kill-time-travel"}:
            if mode == "kill-time-travel":
                self._begin_past(after_s=3 * _PAST_S)
            await self._crash()
            return _cut(request)
        if mode == "reply-lost":
            return _cut(request)
        if mode in _WATCH_MODES:
            await self._strike_watches(mode)
        return answer.response()

    async def _strike_watches(self, mode: str | None) -> None:
        for watch in list(self._watches):
            if mode in {"watch-gone", "time-travel"}:
                await watch.end_gone()
            else:
                watch.is_blind = True
                if mode == "watch-dropped":
                    asyncio.get_running_loop().call_later(_BLIND_S, watch.cut)
        if mode == "time-travel":
            self._begin_past(after_s=_PAST_S)

    def _begin_past(self, after_s: float) -> None:
        self._past_until = asyncio.get_running_loop().time() + after_s

    async def _read(self, request: web.BaseRequest) -> web.Response:
        if asyncio.get_running_loop().time() < self._past_until and request.path in self._first:
            return self._first[request.path].response()
        answer = await self._forward(request, b"")
        if answer.status == web.HTTPOk.status_code:
            self._first.setdefault(request.path, answer)
        return answer.response()

    async def _forward(self, request: web.BaseRequest, body: bytes) -> Answer:
        async with self._http.request(
            request.method,
            self._plane.url + request.path_qs,
            headers=_sent(request),
            data=body or None,
            skip_auto_headers=("Content-Type", "User-Agent"),
        ) as reply:
            return Answer(reply.status, _headers_of(reply), await reply.read())

    async def _watch(self, request: web.BaseRequest) -> web.StreamResponse:
        async with self._http.get(
            self._plane.url + request.path_qs, headers=_sent(request)
        ) as reply:
            stream = web.StreamResponse(status=reply.status, headers=_headers_of(reply))
            await stream.prepare(request)
            watch = _Watch(request, stream)
            self._watches.add(watch)
            try:
                async for piece in reply.content.iter_any():
                    if not watch.is_blind:
                        await stream.write(piece)
            except (aiohttp.ClientError, ConnectionError):
                watch.cut()
            finally:
                self._watches.discard(watch)
            return stream


def _sent(request: web.BaseRequest) -> dict[str, str]:
    return {name: text for name, text in request.headers.items() if name.lower() not in _DROPPED}


def _headers_of(reply: aiohttp.ClientResponse) -> dict[str, str]:
    return {name: text for name, text in reply.headers.items() if name.lower() not in _TAKEN_OVER}


def _cut(request: web.BaseRequest) -> web.Response:
    """Break the connection in the place of an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _refusal(status: int, reason: str) -> web.Response:
    about = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "message": f"injected fault: {reason}",
        "code": status,
    }
    headers = {"Retry-After": "1"} if status == web.HTTPTooManyRequests.status_code else {}
    return web.json_response(about, status=status, headers=headers)
