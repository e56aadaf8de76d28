"""The HTTP client of one sidecar.

Each worker has its own httpx transport: one pool over many origins takes more CPU than the rest
of the operator (docs/decisions/0009). A sidecar's error becomes WorkerProblem, no answer becomes
Unreachable.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from pydantic import ValidationError

from rlfleet_contract import paths
from rlfleet_contract.worker.commands import Command
from rlfleet_contract.worker.fence import Place
from rlfleet_contract.worker.problems import Problem
from rlfleet_contract.worker.report import Target, WorkerReport
from rlfleet_operator import metrics
from rlfleet_operator.core.model.world import Pod
from rlfleet_operator.errors import Unreachable, WorkerProblem

_CONNECT_S = 3.0
_STATE_S = 5.0
_PLACE_S = 0.1
"""How long a state request counts as under way; most are answered in a tenth of it."""
_MARGIN_S = 15.0
"""Added to a command's own timeout."""
_OK_LIMIT = 400
_TLS = ssl.create_default_context()
"""Shared by all workers, because loading the certificates takes 20 ms and 1 MB each time."""


@asynccontextmanager
async def _place(limit: asyncio.Semaphore) -> AsyncIterator[None]:
    """Acquire ``limit`` for 0.1 s at most.

    The limit bounds how many requests start at once. A request that waits for a silent worker
    costs nothing and must not delay the heartbeats to the others.
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


def url_of(address: str, port: int) -> str:
    """Return the base URL of a pod's sidecar."""
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{port}"


class WorkerClient:
    """The HTTP client of one sidecar."""

    def __init__(
        self,
        base_url: str,
        limit: asyncio.Semaphore,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Send to ``base_url``; state requests share ``limit`` with all other workers."""
        limits = httpx.Limits(max_connections=4, max_keepalive_connections=1)
        self.at = base_url.removeprefix("http://")
        """Address and port, for messages."""
        self._limit = limit
        self._http = httpx.AsyncClient(
            base_url=base_url,
            transport=transport
            or httpx.AsyncHTTPTransport(verify=_TLS, limits=limits, trust_env=False),
            trust_env=False,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def state(
        self,
        token: str,
        epoch: int | None = None,
        target: Target | None = None,
        over: Place | None = None,
        unasked: int | None = None,
        *,
        limit: asyncio.Semaphore | None = None,
    ) -> WorkerReport:
        """Return the worker's state; with an epoch this is the driver's heartbeat.

        ``target`` is the requested version. The sidecar rejects later commands up to the place
        ``over``, so that its report stays true. ``unasked`` is the epoch of a driver whose fleet
        has no target. ``limit`` replaces the client's own.
        """
        headers = {} if epoch is None else {paths.EPOCH_HEADER: str(epoch)}
        if target is not None:
            headers[paths.TARGET_HEADER] = target.version
            headers[paths.OWNER_HEADER] = target.owner
        if over is not None:
            headers[paths.OVER_HEADER] = str(over)
        if unasked is not None:
            headers[paths.UNASKED_HEADER] = str(unasked)
        async with _place(limit or self._limit):
            return await self._send("state", "GET", paths.STATE_PATH, token, _STATE_S, **headers)

    async def command(self, token: str, command: Command) -> WorkerReport:
        """Send a command and return the worker's report after its end."""
        headers = {"Content-Type": "application/json"}
        # Without unset fields: a sidecar of the previous release rejects fields it does not know.
        content = command.model_dump_json(exclude_none=True)
        verb, timeout_s = command.PATH.rpartition("/")[2], command.limit_s + _MARGIN_S
        return await self._send(
            verb, command.METHOD, command.PATH, token, timeout_s, content, **headers
        )

    async def _send(
        self,
        verb: str,
        method: str,
        path: str,
        token: str,
        timeout_s: float,
        content: str | None = None,
        **headers: str,
    ) -> WorkerReport:
        headers["Authorization"] = f"Bearer {token}"
        timeout = httpx.Timeout(timeout_s, connect=_CONNECT_S)
        try:
            response = await self._http.request(
                method, path, headers=headers, content=content, timeout=timeout
            )
        except httpx.HTTPError as error:
            metrics.ADMIN_REQUESTS.labels(verb=verb, code=type(error).__name__).inc()
            raise Unreachable(f"{verb}: {type(error).__name__}: {error}") from error
        metrics.ADMIN_REQUESTS.labels(verb=verb, code=str(response.status_code)).inc()
        return _report(verb, response)


def _report(verb: str, response: httpx.Response) -> WorkerReport:
    try:
        if response.status_code < _OK_LIMIT:
            return WorkerReport.model_validate_json(response.content)
        problem = Problem.model_validate_json(response.content)
    except ValidationError as error:
        text = response.text[:200]
        what = f"{verb}: expected JSON of a sidecar, got {response.status_code} {text!r}"
        raise Unreachable(what) from error
    raise WorkerProblem(problem)


def demand_of(pod: Pod, report: WorkerReport) -> WorkerReport:
    """Return the report if it is this pod's; raises Unreachable for another pod's.

    A deleted pod's address may belong to another pod of the fleet, which has the same token.
    """
    if report.pod_uid not in {None, "", pod.uid}:
        raise Unreachable(f"{pod.address} now belongs to pod {report.pod_uid}, expected {pod.uid}")
    return report
