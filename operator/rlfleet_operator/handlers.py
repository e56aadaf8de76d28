"""All of kopf: events of fleets go to those who drive them.

kopf is the shell of the resource's life and no more (docs/decisions/0001): no
finalizer, no change handlers, no patch object, so that deletion never waits for
us and a running step always sees the newest spec.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any, cast

import kopf

from rlfleet_operator.adapters import metrics
from rlfleet_operator.fleet_routes import FleetRoutes
from rlfleet_operator.fleets import Fleets
from rlfleet_operator.resource import API_VERSION, GROUP, PLURAL
from rlfleet_operator.settings import Settings


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


def registry(fleets: Fleets, routes: FleetRoutes, silence_s: float) -> kopf.OperatorRegistry:
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
        # Never longer than kopf's own: the API server remembers events for little more.
        settings.watching.inactivity_timeout = min(settings.watching.inactivity_timeout, silence_s)
        await fleets.open()
        try:
            await routes.open()
        except OSError as error:
            # kopf would begin anew, and open the fleets twice.
            raise kopf.PermanentError(f"the fleets' address: {error}") from error

    @kopf.on.cleanup(registry=made)
    async def end(**_: Any) -> None:
        # Together: a trainer that waits must not hold up the hand-over to another process.
        await asyncio.gather(routes.close(), fleets.close())

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
    routes = FleetRoutes(fleets, settings)
    with contextlib.suppress(asyncio.CancelledError):
        await kopf.operator(
            registry=registry(fleets, routes, settings.watch_silence_seconds),
            # kopf would ask for the user's name, and a pod's user has none.
            identity=cast("Any", "rlfleet"),
            clusterwide=not settings.namespaces,
            namespaces=settings.namespaces,
        )
