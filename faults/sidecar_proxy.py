"""A proxy between the operator and the sidecars: one server on every worker's address.

It listens on a port of its own, which is the operator's admin port, so each worker keeps its
pod's address. Faults strike commands, and from a command on the worker's news.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence

import aiohttp
from aiohttp import web

from faults.api_proxy import Answer
from faults.ledger import Ledger, sidecar_key
from faults.news import MODES, News
from faults.plan import Side
from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code, Problem

_DELAY_S = 1.0
_LATE_S = 2.0
"""After its sender gave up: it has asked by then how the worker is, and acted on that."""
_GARBAGE_S = 1.0
_OVERSIZE_BYTES = 64 * 2**20
_HANGS_S = 600.0
_JSON = {"Content-Type": "application/json"}
_PASSED = frozenset({"authorization", "content-type"})


class SidecarProxy:
    """One operator's way to its workers."""

    def __init__(self, ledger: Ledger, crash: Callable[[], Awaitable[None]]) -> None:
        """``crash`` kills the operator; the other callables come with the node."""
        self._ledger, self._crash = ledger, crash
        self.name_of: Callable[[str], str] = str
        self.kill: Callable[[str], Awaitable[None]]
        self.suspend: Callable[[], None]
        self._garbage_until = 0.0
        self._late: list[asyncio.Task[None]] = []
        self._http: aiohttp.ClientSession
        self._news: News
        self._server: asyncio.Server
        self._web: web.Server
        self.port = 0

    async def start(self, addresses: Sequence[str]) -> None:
        """Listen on these addresses, on a port that is free on the first of them."""
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(None),
        )
        self._news = News(self._http)
        loop = asyncio.get_running_loop()
        self._web = web.Server(self._handle)
        self._server = await loop.create_server(self._web, addresses, _port_of(addresses[0]))
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop to listen."""
        self._server.close()
        for late in self._late:
            late.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)
        await self._web.shutdown(0.05)
        await self._http.close()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        address = _address(request)
        if request.path == paths.WATCH_PATH:
            return await self._news.pass_on(
                request, address, _url(request, address), _sent(request)
            )
        if request.method == "GET":
            if asyncio.get_running_loop().time() < self._garbage_until:
                return web.Response(body=b'{"stage": ', headers=_JSON)
            return await self._forwarded(request, address, body)
        worker = self.name_of(address)
        mode = self._ledger.strikes(Side.SIDECAR, sidecar_key(request.path, worker))
        return await self._struck(mode, request, address, body)

    async def _struck(
        self, mode: str | None, request: web.BaseRequest, address: str, body: bytes
    ) -> web.StreamResponse:
        if mode == "late":
            self._late.append(asyncio.create_task(self._bring_late(request, address, body)))
            return _cut(request)
        if mode in MODES:
            self._news.strike(mode, address)
        instead = await self._before(mode, request, address)
        if instead is not None:
            return instead
        response = await self._forwarded(request, address, body)
        if mode == "duplicate":
            response = await self._forwarded(request, address, body)
        return await self._after(mode, request, address, response)

    async def _bring_late(self, request: web.BaseRequest, address: str, body: bytes) -> None:
        await asyncio.sleep(_LATE_S)
        await self._forwarded(request, address, body)

    async def _before(
        self, mode: str | None, request: web.BaseRequest, address: str
    ) -> web.Response | None:
        """Return the reply of a fault before the sidecar gets the request; None to forward it."""
        if mode in {"kill-before", "sidecar-kill-before"}:
            await (self._crash() if mode == "kill-before" else self.kill(address))
            return _cut(request)
        if mode == "operator-suspended":
            self.suspend()
        if mode == "hang-not-done":
            await asyncio.sleep(_HANGS_S)
        if mode == "delayed":
            await asyncio.sleep(_DELAY_S)
        if mode == "unauthorized":
            return _problem(Code.UNAUTHORIZED, 401)
        if mode == "error-500":
            return _problem(Code.INTERNAL, 500)
        if mode == "malformed-state":
            # A watched worker is seldom asked, so its watch must end.
            self._news.strike("news-malformed", address)
            self._garbage_until = asyncio.get_running_loop().time() + _GARBAGE_S
        return None

    async def _after(
        self, mode: str | None, request: web.BaseRequest, address: str, response: web.Response
    ) -> web.StreamResponse:
        """Return what is answered once the sidecar has done it."""
        if mode in {"kill-after", "sidecar-kill-after"}:
            await (self._crash() if mode == "kill-after" else self.kill(address))
            return _cut(request)
        if mode == "reply-lost":
            return _cut(request)
        if mode == "hang-done":
            await asyncio.sleep(_HANGS_S)
        if mode == "malformed":
            return web.Response(body=b'{"stage": "Open"', headers=_JSON)
        if mode == "oversize":
            return web.Response(body=b" " * _OVERSIZE_BYTES, headers=_JSON)
        return response

    async def _forwarded(self, request: web.BaseRequest, address: str, body: bytes) -> web.Response:
        url, headers = _url(request, address), _sent(request)
        try:
            async with self._http.request(
                request.method, url, headers=headers, data=body or None
            ) as reply:
                told = {"Content-Type": reply.headers.get("Content-Type", "")}
                return Answer(reply.status, told, await reply.read()).response()
        except aiohttp.ClientError:
            # As a pod does whose process has ended.
            return _cut(request)


def _address(request: web.BaseRequest) -> str:
    if request.transport is None:
        raise ConnectionResetError
    return str(request.transport.get_extra_info("sockname")[0])


def _url(request: web.BaseRequest, address: str) -> str:
    return f"http://{address}:{paths.ADMIN_PORT}{request.path_qs}"


def _sent(request: web.BaseRequest) -> dict[str, str]:
    return {
        name: text
        for name, text in request.headers.items()
        if name.lower() in _PASSED or name.lower().startswith("x-rlfleet-")
    }


def _port_of(address: str) -> int:
    """Find a port that is free on this address, and so very likely on its neighbours."""
    with socket.create_server((address, 0)) as held:
        return int(held.getsockname()[1])


def _cut(request: web.BaseRequest) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _problem(code: Code, status: int) -> web.Response:
    problem = Problem.of(code, "injected fault")
    return web.json_response(problem.model_dump(mode="json"), status=status)
