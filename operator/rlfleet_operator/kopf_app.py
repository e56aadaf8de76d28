"""All of kopf: passes the events of fleets to the supervisor.

kopf only watches (docs/decisions/0001): no finalizer, no change handlers, no patch object. So
deletion never waits for the operator, and a running step always reads the newest spec.

A failure of kopf must not stop a driver. kopf fails on any unexpected answer to its watch and
then cancels every task of its loop. So it has its own thread and loop, and restarts.
"""

import asyncio
import contextlib
import dataclasses
import logging
import signal
import threading
import time
from collections.abc import Coroutine
from typing import Any, cast

import aiohttp
import kopf

from rlfleet_operator import metrics
from rlfleet_operator.core.backoff import Backoff
from rlfleet_operator.crd.fleet_spec import API_VERSION, GROUP, PLURAL
from rlfleet_operator.reconcile.supervisor import Supervisor
from rlfleet_operator.settings import OperatorSettings
from rlfleet_operator.trainer_api.server import FleetRoutes

_log = logging.getLogger(__name__)
_BACKOFF = Backoff(0.5, 20.0, well_s=60.0)
"""Pauses before kopf restarts."""
_WATCH_INTERVAL_S = 1.0
"""The shortest time from the begin of one watch to that of the next."""
_END_S = 2.0
"""How long the process waits for kopf's thread when it exits."""


class _NoDiff(kopf.DiffBaseStorage):
    """Keeps no copy of the spec, because no change handler compares it."""

    def fetch(self, *, body: kopf.Body) -> None:  # noqa: ARG002 - kopf's signature
        return None

    def build(self, *, body: kopf.Body, extra_fields: Any = None) -> kopf.BodyEssence:  # noqa: ARG002
        return kopf.BodyEssence({})

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Write nothing."""


class FleetWatch:
    """Runs kopf in its own thread and restarts it when it fails."""

    def __init__(self, fleets: Supervisor, settings: OperatorSettings) -> None:
        """Deliver events to ``fleets`` in the current event loop."""
        self._fleets, self._settings = fleets, settings
        self._loop = asyncio.get_running_loop()
        self._is_over, self._ended = threading.Event(), asyncio.Event()
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None

    async def run(self) -> None:
        """Watch until cancelled."""
        # A daemon: a thread that hangs must not keep the process alive.
        threading.Thread(target=self._work, name="kopf", daemon=True).start()
        try:
            await self._ended.wait()
        finally:
            self._is_over.set()
            if self._running is not None:
                loop, task = self._running
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(task.cancel)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), _END_S)

    def _work(self) -> None:
        failures = 0
        while not self._is_over.is_set():
            begun = time.monotonic()
            try:
                asyncio.run(self._watch())
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - it begins again
                found: BaseException | None = error
            else:
                found = None
            if self._is_over.is_set():
                break
            failures = _BACKOFF.failed(failures, time.monotonic() - begun)
            pause_s = _BACKOFF.pause_s(failures)
            extra = {"error": repr(found), "again_in_s": pause_s}
            _log.error("Fleet watch failed", extra=extra)
            self._call(self._fleets.miss)
            self._is_over.wait(pause_s)
        self._call(self._ended.set)

    async def _watch(self) -> None:
        """Run kopf until it fails, in its own thread."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - for the type alone
        self._running = asyncio.get_running_loop(), task
        await self._there(self._fleets.discovered())
        await kopf.operator(
            registry=self._registry(),
            # Else kopf looks up the user's name, which a pod's user lacks.
            identity=cast("Any", "rlfleet"),
            clusterwide=not self._settings.namespaces,
            namespaces=self._settings.namespaces,
        )

    def _call(self, function: Any, *arguments: Any) -> None:
        """Call a function in the operator's event loop, unless that loop is closed."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    async def _there(self, asked: Coroutine[Any, Any, Any]) -> Any:
        """Return what a coroutine returns in the operator's event loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asked, self._loop))

    def _registry(self) -> kopf.OperatorRegistry:
        made = kopf.OperatorRegistry()
        silence_s = self._settings.watch_silence_seconds

        @kopf.on.startup(registry=made)
        async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
            _configure(settings, silence_s)

        @kopf.on.login(registry=made)
        async def login(**_: Any) -> kopf.AiohttpSession:
            # The credentials of the operator's own client; kopf asks again when they expire.
            found = await self._there(self._fleets.credentials())
            return _connected(kopf.ConnectionInfo(**dataclasses.asdict(found)))

        @kopf.on.event(GROUP, API_VERSION, PLURAL, registry=made)
        async def seen(event: kopf.RawEvent, **_: Any) -> None:
            self._call(self._fleets.deliver, event["type"], dict(event["object"]))

        return made


def _connected(found: kopf.ConnectionInfo) -> kopf.AiohttpSession:
    """Return kopf's own session, but with a pause between watches.

    After a watch that the server ended well, kopf begins the next at once: thousands a second at a
    server, or behind a proxy, that ends each at its begin.
    """
    pace, begun = aiohttp.TraceConfig(), dict[str, float]()

    async def rest(_session: object, _context: object, request: Any) -> None:
        if "watch" in request.url.query:
            due = begun.get(request.url.path, 0.0) + _WATCH_INTERVAL_S
            await asyncio.sleep(due - time.monotonic())
            begun[request.url.path] = time.monotonic()

    pace.on_request_start.append(rest)
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=found.as_ssl_context()),
        headers=found.as_http_headers(),
        proxy=found.proxy_url,
        trace_configs=[pace],
    )
    return kopf.AiohttpSession(server=found.server, aiohttp_session=session)


def _configure(settings: kopf.OperatorSettings, silence_s: float) -> None:
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.process.ultimate_exiting_timeout = None
    settings.persistence.diffbase_storage = _NoDiff()
    # Without end: a short outage of the API server must not end us.
    settings.networking.error_backoffs = Backoff(0.5, 5.0)
    settings.networking.request_timeout = 30
    settings.watching.server_timeout = 300
    settings.watching.reconnect_backoff = 0.2
    # At most kopf's own default: the API server keeps events only slightly longer.
    settings.watching.inactivity_timeout = min(settings.watching.inactivity_timeout, silence_s)


async def run(settings: OperatorSettings, health: metrics.Health) -> None:
    """Run the operator until SIGINT or SIGTERM."""
    working = asyncio.create_task(_work(settings, health))
    for one in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(one, working.cancel)
    # At each start in a thread kopf logs that it does not handle signals.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
    with contextlib.suppress(asyncio.CancelledError):
        await working


async def _work(settings: OperatorSettings, health: metrics.Health) -> None:
    fleets = Supervisor(settings, health)
    routes = FleetRoutes(fleets, settings)
    await fleets.open()
    try:
        await _opened(routes)
        await FleetWatch(fleets, settings).run()
    finally:
        # Together: a waiting trainer must not delay the hand-over to another leader.
        await asyncio.gather(routes.close(), fleets.close())


async def _opened(routes: FleetRoutes) -> None:
    try:
        await routes.open()
    except OSError as error:
        raise OSError(f"failed to serve the fleet API: {error}") from error
