"""All of kopf: events of fleets start, wake and end one loop per fleet.

kopf is the shell of the resource's life and no more (docs/decisions/0001): no
finalizer, no change handlers, no patch object, so that deletion never waits for
us and a running step always sees the newest spec.
"""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Iterator
from typing import Any, cast

import kopf

from rlfleet_operator.adapters import metrics
from rlfleet_operator.adapters.kube import Credentials, Kube
from rlfleet_operator.adapters.pods import FleetKey, Pods
from rlfleet_operator.driver import Driver, Services
from rlfleet_operator.resource import API_VERSION, GROUP, PLURAL
from rlfleet_operator.settings import Settings

_log = logging.getLogger(__name__)
_BEAT_S = 1.0


class Fleets:
    """The loops of all fleets."""

    def __init__(self, settings: Settings, health: metrics.Health) -> None:
        """Begin with none; ``open`` connects."""
        self._settings, self._health = settings, health
        self._drivers: dict[FleetKey, tuple[Driver, asyncio.Task[None]]] = {}
        self._services: Services | None = None
        self._kube: Kube
        self._tasks: list[asyncio.Task[Any]] = []

    async def open(self) -> None:
        """Connect, list the pods, begin to watch them."""
        self._kube = kube = await Kube.connect()
        pods = Pods(kube, self._settings.namespaces, self._pods_changed)
        limit = asyncio.Semaphore(self._settings.sidecar_concurrency)
        self._services = Services(kube, pods, self._settings, limit)
        self._tasks = [asyncio.create_task(pods.run()), asyncio.create_task(self._beat())]
        await pods.synced.wait()

    async def credentials(self) -> Credentials:
        """Return what kopf may connect with."""
        return await self._kube.credentials()

    async def close(self) -> None:
        """End every loop; sidecars end by themselves what they have begun."""
        tasks = [*self._tasks, *(task for _, task in self._drivers.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._services is not None:
            await self._services.kube.close()

    def deliver(self, kind: str | None, raw: dict[str, Any]) -> None:
        """Take an event of a fleet."""
        key = (raw["metadata"]["namespace"], raw["metadata"]["name"])
        if kind == "DELETED":
            self._end(key)
        elif key in self._drivers and not self._drivers[key][1].done():
            self._drivers[key][0].deliver(raw)
        elif self._services is not None:
            driver = Driver(key, raw, self._services)
            self._drivers[key] = (driver, asyncio.create_task(driver.run()))

    def _end(self, key: FleetKey) -> None:
        known = self._drivers.pop(key, None)
        if known is not None:
            known[1].cancel()

    def _pods_changed(self, key: FleetKey) -> None:
        if key in self._drivers:
            self._drivers[key][0].wake()

    async def _beat(self) -> None:
        while True:
            self._health.beat()
            for driver, task in self._drivers.values():
                if task.done() and not task.cancelled() and task.exception() is not None:
                    # A defect of ours: say it loudly, and let the pod's restart mend it.
                    _log.critical("a fleet's loop died", exc_info=task.exception())
                    raise SystemExit(driver.key)
            await asyncio.sleep(_BEAT_S)


class _NoDiff(kopf.DiffBaseStorage):
    """Keeps no copy of the spec: there are no change handlers to compare for."""

    def fetch(self, *, body: kopf.Body) -> None:  # noqa: ARG002 - kopf's signature
        return None

    def build(self, *, body: kopf.Body, extra_fields: Any = None) -> kopf.BodyEssence:  # noqa: ARG002
        return kopf.BodyEssence({})

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Write nothing."""


class _Forever:
    """Back-offs without end: a short outage of the API server must not end us."""

    def __iter__(self) -> Iterator[float]:
        yield from (0.5, 1, 2, 4)
        while True:
            yield 5.0


def registry(fleets: Fleets) -> kopf.OperatorRegistry:
    """Return kopf's handlers over these fleets."""
    made = kopf.OperatorRegistry()

    @kopf.on.startup(registry=made)
    async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.peering.standalone = True
        settings.scanning.disabled = True
        settings.posting.enabled = False
        settings.persistence.diffbase_storage = _NoDiff()
        settings.networking.error_backoffs = _Forever()
        settings.networking.request_timeout = 30
        settings.watching.server_timeout = 300
        settings.watching.reconnect_backoff = 0.2
        await fleets.open()

    @kopf.on.cleanup(registry=made)
    async def end(**_: Any) -> None:
        await fleets.close()

    @kopf.on.login(registry=made)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        # The same credentials as our own client's; kopf asks again when they expire.
        return kopf.ConnectionInfo(**dataclasses.asdict(await fleets.credentials()))

    @kopf.on.event(GROUP, API_VERSION, PLURAL, registry=made)
    async def seen(event: kopf.RawEvent, **_: Any) -> None:
        fleets.deliver(event["type"], dict(event["object"]))

    return made


async def run(settings: Settings, health: metrics.Health) -> None:
    """Run the operator until it is told to stop."""
    fleets = Fleets(settings, health)
    with contextlib.suppress(asyncio.CancelledError):
        await kopf.operator(
            registry=registry(fleets),
            # kopf would ask for the user's name, and a pod's user has none.
            identity=cast("Any", "rlfleet"),
            clusterwide=not settings.namespaces,
            namespaces=settings.namespaces,
        )
