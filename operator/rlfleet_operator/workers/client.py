"""The client of the sidecars, over httpx with one small transport per worker.

One shared pool over many origins costs more CPU than all else together
(docs/decisions/0009), so each worker has its own. A sidecar's problem becomes
WorkerProblem, silence becomes Unreachable.
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
from rlfleet_contract.worker.report import WorkerReport
from rlfleet_contract.worker.target import Target
from rlfleet_operator import metrics
from rlfleet_operator.core.model.world import Pod
from rlfleet_operator.errors import Unreachable, WorkerProblem

_CONNECT_S = 3.0
_STATE_S = 5.0
_PLACE_S = 0.1
"""How long a question counts among those under way: most are answered in a tenth of it."""
_MARGIN_S = 15.0
"""How much longer than the sidecar itself we wait for its answer."""
_OK_LIMIT = 400
_TLS = ssl.create_default_context()
"""One for all workers: to load the certificates takes 20 ms and a megabyte each time."""


@asynccontextmanager
async def _place(limit: asyncio.Semaphore) -> AsyncIterator[None]:
    """Hold a place among the questions under way, for a moment at most.

    The places bound how many begin at once. One that waits for silence costs nothing, and must
    not keep the signs of life of other workers waiting.
    """
    await limit.acquire()
    is_held = True

    def give_back() -> None:
        nonlocal is_held
        if is_held:
            is_held = False
            limit.release()

    timer = asyncio.get_running_loop().call_later(_PLACE_S, give_back)
    try:
        yield
    finally:
        timer.cancel()
        give_back()


def url_of(address: str, port: int) -> str:
    """Return where a pod's sidecar listens; an IPv6 address stands in brackets."""
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{port}"


class WorkerClient:
    """Talks to one sidecar."""

    def __init__(
        self,
        base_url: str,
        limit: asyncio.Semaphore,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Talk to ``base_url``; short calls share ``limit`` with all other workers."""
        limits = httpx.Limits(max_connections=4, max_keepalive_connections=1)
        self.at = base_url.removeprefix("http://")
        """Address and port, for people."""
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
        """Ask how the worker is; with an epoch it is a sign of life of whoever drives it.

        Such a sign tells the version that the fleet is asked for, too. Commands up to the place
        ``over`` that have not arrived are refused from then on: what is told is not overtaken.
        ``unasked`` is the epoch of a driver whose fleet is asked for no version. The question
        shares ``limit``, the client's own if it is None.
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
        """Have a command carried out; answers when that has ended."""
        headers = {"Content-Type": "application/json"}
        # What is not asked for is left out: a sidecar of the release before does not know it.
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
        raise Unreachable(f"{verb}: {response.status_code}, not in our words: {text}") from error
    raise WorkerProblem(problem)


def demand_of(pod: Pod, report: WorkerReport) -> WorkerReport:
    """Return a report that is this pod's; raises Unreachable for another's.

    An address that a pod gave up may be another's by now, and all have one token.
    """
    if report.pod_uid not in {None, "", pod.uid}:
        raise Unreachable(f"{pod.address} is the address of pod {report.pod_uid} by now")
    return report
