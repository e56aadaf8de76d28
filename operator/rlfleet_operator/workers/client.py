"""The HTTP client of one sidecar.

Each worker has a session of its own (docs/decisions/0009), so that the end of its contact ends
its connections. A sidecar's error becomes WorkerProblem, no answer becomes Unreachable.
"""

import asyncio
from asyncio.trsock import TransportSocket
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import aiohttp
from pydantic import ValidationError
from yarl import URL

from rlfleet_contract import paths
from rlfleet_contract.worker.commands import Command
from rlfleet_contract.worker.fence import Place
from rlfleet_contract.worker.problems import Problem
from rlfleet_contract.worker.report import Target, WorkerReport
from rlfleet_contract.worker.retention import Needs
from rlfleet_operator import metrics
from rlfleet_operator.core.model.worker_pod import Pod
from rlfleet_operator.errors import Unreachable, WorkerProblem
from rlfleet_operator.workers.certificate import SidecarCertificate
from rlfleet_operator.workers.quiet_socket import LEAST, QuietSocket

_CONNECT_S = 3.0
_STATE_S = 5.0
_PLACE_S = 0.1
"""How long a request counts as one that starts; most state requests are answered in a tenth."""
_MARGIN_S = 15.0
"""Added to a command's own timeout."""
_KEPT_S = 5.0
"""How long an idle connection is kept: from a question to the command after it. Sidecars keep it
for 75 s, so they never close it first."""
_CONNECTIONS = 5
"""A watch, a state request, and commands for weights, a prepare and an adapter."""
_MOST_BYTES = 4 * 1024 * 1024
"""The largest reply that is read; a report of a thousand adapters takes 300 KiB."""
_OK, _OK_LIMIT = 200, 400
_NO_HEADERS = frozenset({"User-Agent", "Accept", "Accept-Encoding"})


@asynccontextmanager
async def place(limit: asyncio.Semaphore) -> AsyncIterator[None]:
    """Acquire ``limit`` for 0.1 s at most.

    The limit bounds how many requests start at once: a thousand that connect together would miss
    their timeouts, because this process is busy with the others. A request that waits for a
    silent worker costs nothing and must not delay the heartbeats to the others.
    """
    await limit.acquire()
    is_taken = True

    def give_back() -> None:
        nonlocal is_taken
        if is_taken:
            is_taken = False
            limit.release()

    timer = asyncio.get_running_loop().call_later(_PLACE_S, give_back)
    try:
        yield
    finally:
        timer.cancel()
        give_back()


def url_of(address: str, port: int, scheme: str = "http") -> str:
    """Return the base URL of a server in a pod."""
    host = f"[{address}]" if ":" in address else address
    return f"{scheme}://{host}:{port}"


def client_of(
    pod: Pod, port: int, limit: asyncio.Semaphore, certificate: SidecarCertificate | None
) -> "WorkerClient":
    """Return the client of a pod that has an address."""
    scheme = "http" if certificate is None else "https"
    return WorkerClient(url_of(pod.answers_at or "", port, scheme), limit, certificate)


class WorkerClient:
    """The HTTP client of one sidecar."""

    def __init__(
        self,
        base_url: str,
        limit: asyncio.Semaphore,
        certificate: SidecarCertificate | None = None,
    ) -> None:
        """Send to ``base_url``; state requests share ``limit`` with all other workers."""
        self.at = base_url.rpartition("//")[2]
        """Address and port, for messages."""
        self._base, self._limit, self._certificate = base_url, limit, certificate
        self._quiet = QuietSocket(None)
        """Of the last watch."""
        # Neither proxies nor ~/.netrc: a pod's address is reached directly.
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=_CONNECTIONS, keepalive_timeout=_KEPT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_NO_HEADERS,
            auto_decompress=False,
            trust_env=False,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def state(
        self,
        token: str,
        epoch: int | None = None,
        target: Target | None = None,
        over: Place | None = None,
        unasked: int | None = None,
        *,
        follows: bool = False,
        taken_up: str | None = None,
        needs: Needs | None = None,
        limit: asyncio.Semaphore | None = None,
    ) -> WorkerReport:
        """Return the worker's state; with an epoch this is the driver's heartbeat.

        ``target`` is the requested version. The sidecar rejects later commands up to the place
        ``over``, so that its report stays true. ``unasked`` is the epoch of a driver whose fleet
        has no target. With ``follows`` the worker looks for the newest version, with ``taken_up``
        too it accepts one that is offered beyond that, with ``needs`` it looks for versions beyond
        them. ``limit`` replaces the client's own.
        """
        headers = {} if epoch is None else {paths.EPOCH_HEADER: str(epoch)}
        if target is not None:
            headers[paths.TARGET_HEADER] = target.version
            headers[paths.OWNER_HEADER] = target.owner
        if follows:
            headers[paths.FOLLOW_HEADER] = "Latest"
            if taken_up is not None:
                headers[paths.TAKEN_UP_HEADER] = taken_up
        if needs is not None:
            headers[paths.NEEDS_HEADER] = needs.model_dump_json(exclude_none=True)
        if over is not None:
            headers[paths.OVER_HEADER] = str(over)
        if unasked is not None:
            headers[paths.UNASKED_HEADER] = str(unasked)
        async with place(limit or self._limit):
            return await self._send("state", "GET", paths.STATE_PATH, token, _STATE_S, headers)

    async def watch(self, token: str) -> AsyncGenerator[WorkerReport | None, None]:
        """Yield the worker's report whenever it has news, and None for a sign of life.

        Most signs are not yielded, but ``has_signs`` shows them. Ends with the connection, not by
        silence. Raises WorkerProblem if the sidecar rejects it, as one of an earlier release does.
        """
        timeout = aiohttp.ClientTimeout(sock_connect=_CONNECT_S)
        # The end of a reply has too few bytes to wake this process; that of a connection does.
        ends = {"Connection": "close"}
        async with (
            self._translated("watch"),
            await self._request("GET", paths.WATCH_PATH, token, timeout, ends) as response,
        ):
            metrics.ADMIN_REQUESTS.labels(verb="watch", code=str(response.status)).inc()
            if response.status != _OK:
                _report("watch", response.status, await body_of(response))
                raise Unreachable(f"watch: expected {_OK}, got {response.status}")
            self._quiet = quiet = QuietSocket(_socket_of(response))
            async for line in _lines(response, quiet):
                yield _report("watch", _OK, line) if line else None

    def has_signs(self) -> bool:
        """Return whether the watch got signs of life since the last call that it did not yield."""
        return self._quiet.has_more()

    async def command(self, token: str, command: Command) -> WorkerReport:
        """Send a command and return the worker's report after its end."""
        headers = {"Content-Type": "application/json"}
        # Without unset fields: a sidecar of the previous release rejects fields it does not know.
        content = command.model_dump_json(exclude_none=True).encode()
        verb, timeout_s = command.PATH.rpartition("/")[2], command.limit_s + _MARGIN_S
        return await self._send(
            verb, command.METHOD, command.PATH, token, timeout_s, headers, content
        )

    async def _send(
        self,
        verb: str,
        method: str,
        path: str,
        token: str,
        timeout_s: float,
        headers: Mapping[str, str],
        content: bytes | None = None,
    ) -> WorkerReport:
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=_CONNECT_S)
        async with (
            self._translated(verb),
            await self._request(method, path, token, timeout, headers, content) as response,
        ):
            status, body = response.status, await body_of(response)
        metrics.ADMIN_REQUESTS.labels(verb=verb, code=str(status)).inc()
        return _report(verb, status, body)

    async def _request(
        self,
        method: str,
        path: str,
        token: str,
        timeout: aiohttp.ClientTimeout,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        certificate = self._certificate
        return self._http.request(
            method,
            URL(self._base + path, encoded=True),
            headers={**(headers or {}), "Authorization": f"Bearer {token}"},
            data=content,
            timeout=timeout,
            allow_redirects=False,
            ssl=True if certificate is None else await certificate.context(),
            server_hostname=None if certificate is None else certificate.name,
        )

    @asynccontextmanager
    async def _translated(self, verb: str) -> AsyncIterator[None]:
        """Turn the library's errors into Unreachable."""
        try:
            yield
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            # ValueError: the Secret has a character that no header may have.
            kind = _kind_of(error)
            metrics.ADMIN_REQUESTS.labels(verb=verb, code=kind).inc()
            # A timeout has no words of its own.
            said = ": ".join(filter(None, (verb, kind, _detail_of(error))))
            raise Unreachable(said) from error


def _socket_of(response: aiohttp.ClientResponse) -> TransportSocket | None:
    """Return a watch's socket; None with TLS, where the rest of a record may be short too."""
    connection = response.connection
    transport = None if connection is None else connection.transport
    if transport is None or transport.get_extra_info("ssl_object") is not None:
        return None
    found: TransportSocket | None = transport.get_extra_info("socket")
    return found


async def _lines(response: aiohttp.ClientResponse, quiet: QuietSocket) -> AsyncIterator[bytes]:
    """Yield lines; raises ClientPayloadError for one that no sidecar sends."""
    rest = b""
    async for piece in response.content.iter_any():
        *lines, rest = (rest + piece).split(b"\n")
        # The rest of a line may be short.
        quiet.wake_for(1 if rest else LEAST)
        for line in lines:
            yield line
        if len(rest) > _MOST_BYTES:
            raise aiohttp.ClientPayloadError(f"line too long (at most {_MOST_BYTES} bytes)")


async def body_of(response: aiohttp.ClientResponse) -> bytes:
    """Read a body to its end; raises ClientPayloadError for one that is too large."""
    pieces: list[bytes] = []
    size = 0
    async for piece in response.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > _MOST_BYTES:
            raise aiohttp.ClientPayloadError(f"reply too large (at most {_MOST_BYTES} bytes)")
    return b"".join(pieces)


def _kind_of(error: Exception) -> str:
    """Return the error's name in status, metrics and troubleshoot.md."""
    match error:
        case aiohttp.ClientSSLError():
            return "TLSError"
        case aiohttp.ConnectionTimeoutError():
            return "ConnectTimeout"
        case aiohttp.ClientConnectorError():
            return "ConnectError"
        case TimeoutError():
            return "ReadTimeout"
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError():
            return "ReadError"
        case _:
            return "ProtocolError"


def _detail_of(error: Exception) -> str:
    """Return the system's own words, without address and port, which the message has already."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return str(error.certificate_error)
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    return (cause.strerror if isinstance(cause, OSError) else None) or str(cause)


def _report(verb: str, status: int, body: bytes) -> WorkerReport:
    try:
        if status < _OK_LIMIT:
            return WorkerReport.model_validate_json(body)
        problem = Problem.model_validate_json(body)
    except ValidationError as error:
        text = body[:200].decode(errors="replace")
        what = f"{verb}: expected JSON of a sidecar, got {status} {text!r}"
        raise Unreachable(what) from error
    raise WorkerProblem(problem)


def demand_of(pod: Pod, report: WorkerReport) -> WorkerReport:
    """Return the report if it is this pod's; raises Unreachable for another pod's.

    A deleted pod's address may belong to another pod of the fleet, which has the same token.
    """
    if report.pod_uid not in {None, "", pod.uid}:
        raise Unreachable(f"{pod.address} now belongs to pod {report.pod_uid}, expected {pod.uid}")
    return report
