"""Runs one driver per fleet while this process leads; a standby only watches.

A standby watches fleets and pods as the leader does, so that it can start at once when it leads.

A driver that fails must stop only its own fleet, and restarts after a pause. Only a defect in a
loop that all fleets share ends the process.
"""

import asyncio
import contextlib
import logging
import time
from dataclasses import replace
from functools import partial
from typing import Any

from rlfleet_operator import metrics
from rlfleet_operator.core.backoff import Backoff
from rlfleet_operator.core.election import PACE
from rlfleet_operator.core.model.worker_pod import Pod
from rlfleet_operator.errors import Forbidden, Missing, OperatorError
from rlfleet_operator.kube import apply, discovery
from rlfleet_operator.kube.client import (
    METADATA_ONLY,
    Json,
    KubeClient,
    KubeCredentials,
    WatchEnded,
    fleet_path,
    is_newer,
    revision_of,
)
from rlfleet_operator.kube.lease import Election, LeaseElection, LeaseTerm, Unopposed
from rlfleet_operator.kube.pod_cache import REFUSALS, FleetKey, PodCache
from rlfleet_operator.reconcile.reconciler import Reconciler
from rlfleet_operator.reconcile.shared_clients import SharedClients
from rlfleet_operator.settings import OperatorSettings
from rlfleet_operator.workers.certificate import SidecarCertificates

_log = logging.getLogger(__name__)
_BEAT_S = 1.0
_BACKOFF = Backoff(5.0, 300.0, well_s=300.0)
"""Between a driver that failed and the next of its fleet."""
_SWEEP_S = 60.0
"""How often all fleets are listed: no event reports changes during a gap of kopf's watch."""
_STALE_S = 45.0
"""How long an API server may be stale, less than two sweeps."""
_REMEMBERED = 10_000
"""The number of deleted fleets whose late events are recognized."""


class StoreRewoundError(Exception):
    """The API server's objects are older than before, as after a restore of etcd."""


class Supervisor:
    """The newest state of every fleet, and a driver for each while this process leads."""

    def __init__(self, settings: OperatorSettings, health: metrics.Health) -> None:
        """Start with no fleet; ``open`` connects."""
        self._settings, self._health = settings, health
        self._raws: dict[FleetKey, Json] = {}
        self._gone: dict[FleetKey, int] = {}
        """Deleted fleets with the revision of their deletion; older events are late."""
        self._awaited: dict[FleetKey, asyncio.Event] = {}
        """Set, and removed, when a fleet has a newer state."""
        self._drivers: dict[FleetKey, tuple[Reconciler, asyncio.Task[None]]] = {}
        self._failed: dict[FleetKey, tuple[int, float]] = {}
        """How many drivers failed since the spec was written, and when the next begins."""
        self._leading: SharedClients | None = None
        """The services of drivers in the current term; None on a standby."""
        self.kube: KubeClient
        """For writes that any client may make; drivers write only under a term."""
        self.certificates: SidecarCertificates
        self._pods: PodCache
        self._election: Election
        self._tasks: list[asyncio.Task[Any]] = []
        self._rewound_since: float | None = None
        """Since when lists are older than what is known, monotonic."""
        self._missed = asyncio.Event()
        """Set when the watch was interrupted and may have missed events."""

    async def open(self) -> None:
        """Connect, list pods and fleets, and start the watch and the election."""
        self.kube = kube = await KubeClient.connect()
        self.certificates = SidecarCertificates(partial(apply.ca_of, kube))
        self._pods = pods = PodCache(
            kube,
            self._settings.namespaces,
            self._pods_changed,
            self._settings.watch_silence_seconds,
        )
        self._election = await _election(self._settings, self._health)
        watching, beating = asyncio.create_task(pods.run()), asyncio.create_task(self._beat())
        self._tasks = [watching, beating]
        await pods.synced.wait()
        # A trainer must not get 404 for a fleet that is not listed yet.
        await self._list()
        self._health.is_listed = True
        limit = asyncio.Semaphore(self._settings.sidecar_concurrency)
        services = SharedClients(kube, pods, self._settings, limit, LeaseTerm(), self.certificates)
        self._tasks.append(asyncio.create_task(self._lead(services)))
        self._tasks.append(asyncio.create_task(self._keep_sweeping()))

    async def discovered(self) -> None:
        """Return once kopf would find fleets."""
        await discovery.fleets_named(self.kube)

    async def credentials(self) -> KubeCredentials:
        """Return the credentials that kopf connects with."""
        return await self.kube.credentials()

    async def close(self) -> None:
        """End every loop, then release the Lease; sidecars complete their changes themselves."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._election.release()
        await self.kube.close()

    def known(self, key: FleetKey) -> Json | None:
        """Return the newest state of a fleet; None if it does not exist."""
        return self._raws.get(key)

    def pods_of(self, key: FleetKey) -> dict[str, Pod]:
        """Return the pods that belong to a fleet, by name."""
        raw = self._raws.get(key)
        return self._pods.owned(key, raw["metadata"]["uid"] if raw else None)

    async def news(self, key: FleetKey, within_s: float) -> None:
        """Return when a fleet has a newer state or is deleted, or after ``within_s`` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, within_s)):
                await self._awaited.setdefault(key, asyncio.Event()).wait()

    async def _list(self) -> None:
        for namespace in self._settings.namespaces or ("",):
            for raw in (await self._listed(namespace))["items"]:
                self.deliver(None, raw)

    async def _listed(self, namespace: str) -> Json:
        refusals = 0
        while True:
            try:
                found = await self.kube.get(fleet_path(namespace))
            except OperatorError as error:
                extra = {"namespace": namespace or None, "error": str(error)}
                _log.warning("Failed to list fleets", extra=extra)
                refusals += isinstance(error, Forbidden)
                if namespace and refusals >= REFUSALS:
                    # It may have been deleted with the role in it; kopf keeps trying.
                    return {"items": []}
                await asyncio.sleep(_BEAT_S)
            else:
                return found

    def deliver(self, kind: str | None, raw: Json) -> None:
        """Process a watch event of a fleet, or (with no kind) a state that was read."""
        key = _key(raw)
        self._announce(key)
        if revision_of(raw) <= self._gone.get(key, 0):
            return
        known = self._raws.get(key)
        if kind == "DELETED":
            if known is None or not is_newer(known, raw):
                self._forget(key, revision_of(raw))
            return
        if known is not None and not is_newer(raw, known):
            return
        self._raws[key] = raw
        if known is not None and _spec_key(raw) != _spec_key(known):
            # A defect with the old spec may not occur with the new one: retry at once.
            self._failed.pop(key, None)
        self._drive(key)

    def _announce(self, key: FleetKey) -> None:
        awaited = self._awaited.pop(key, None)
        if awaited is not None:
            awaited.set()

    def _forget(self, key: FleetKey, revision: int) -> None:
        self._announce(key)
        self._raws.pop(key, None)
        self._failed.pop(key, None)
        self._gone[key] = revision
        if len(self._gone) > _REMEMBERED:
            del self._gone[next(iter(self._gone))]
        metrics.forget(*key)
        known = self._drivers.pop(key, None)
        if known is not None:
            known[1].cancel()

    async def _keep_sweeping(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._missed.wait(), _SWEEP_S)
            self._missed.clear()
            for namespace in self._settings.namespaces or ("",):
                with contextlib.suppress(OperatorError, WatchEnded):
                    await self.sweep(namespace)

    def miss(self) -> None:
        """List all fleets now, because their watch was interrupted."""
        self._missed.set()

    async def sweep(self, namespace: str) -> None:
        """List the fleets of a namespace (empty: of all) and process what the watch missed.

        Raises StoreRewoundError if lists have been older than what is known for a minute.
        """
        found, revision = dict[FleetKey, Json](), 0
        highest = max(map(revision_of, self._raws.values()), default=0)
        path = fleet_path(namespace)
        async for page in self.kube.pages(path, accept=METADATA_ONLY, limit="500"):
            found |= {_key(item): item for item in page["items"]}
            revision = revision_of(page)
        if revision < highest:
            self._demand_passing(revision, highest)
            return
        self._rewound_since = None
        for key, raw in list(self._raws.items()):
            is_of_it = not namespace or key[0] == namespace
            is_there = key in found or revision_of(raw) > revision
            if is_of_it and not is_there:
                about = {"namespace": key[0], "fleet": key[1]}
                _log.info("Found a deleted fleet that the watch missed", extra=about)
                self._forget(key, revision)
        for key, item in found.items():
            await self._take_missed(item)
            self._drive_again(key)

    def _demand_passing(self, revision: int, highest: int) -> None:
        """Raise StoreRewoundError if the API server has been in the past for long.

        One that is stale catches up. After a restore of etcd newer states have lower revisions,
        and only a new process takes them.
        """
        now = time.monotonic()
        self._rewound_since = self._rewound_since or now
        if now - self._rewound_since >= _STALE_S:
            raise StoreRewoundError(
                f"fleets listed at revision {revision}, known at {highest}: etcd was restored"
            )

    async def _take_missed(self, listed: Json) -> None:
        """Read a fleet whose newest state the watch did not deliver."""
        key = _key(listed)
        known = self._raws.get(key)
        if known is not None and not is_newer(listed, known):
            return
        with contextlib.suppress(Missing):
            self.deliver(None, await self.kube.get(fleet_path(*key)))
            about = {"namespace": key[0], "fleet": key[1]}
            _log.info("Found a changed fleet that the watch missed", extra=about)

    def _drive_again(self, key: FleetKey) -> None:
        """Start another driver for a listed fleet whose driver has ended.

        A driver takes 404 for the fleet's deletion; an API server that starts, or a proxy before
        it, may answer so for a moment. ``_replace_failed`` handles a driver that failed.
        """
        known = self._drivers.get(key)
        is_over = known is not None and known[1].done() and _defect_of(known[1]) is None
        if key in self._raws and is_over:
            about = {"namespace": key[0], "fleet": key[1]}
            _log.warning("Found a fleet whose driver has ended, starting another", extra=about)
            self._drive(key)

    def _drive(self, key: FleetKey) -> None:
        """Pass a fleet's newest state to its driver, or start one, if this process leads."""
        if self._leading is None:
            return
        known, uid = self._drivers.get(key), self._raws[key]["metadata"]["uid"]
        before: asyncio.Task[None] | None = None
        if known is not None and known[0].uid != uid:
            # A new fleet with the same name gets a new driver.
            before = known[1]
            before.cancel()
            metrics.forget(*key)
        elif known is not None and not known[1].done():
            known[0].deliver(self._raws[key])
            return
        elif known is not None and _defect_of(known[1]) is not None:
            return  # _replace_failed handles its failure first.
        if key in self._failed and time.monotonic() < self._failed[key][1]:
            return
        driver = Reconciler(key, self._raws[key], self._leading)
        self._drivers[key] = (driver, asyncio.create_task(_driven(driver, before)))

    async def _lead(self, services: SharedClients) -> None:
        """Repeat: win the election, drive all fleets until the term is over, end all drivers."""
        while True:
            term, action = await self._election.win(), None
            kube = services.kube.under(term.demand)
            metrics.LEADER.set(1)
            try:
                self.drive_under(replace(services, kube=kube, term=term))
                action = await self._election.hold(term)
            finally:
                term.end()
                metrics.LEADER.set(0)
                await self.end_drivers()
            if action is not None:
                _log.error("Another operator drives the same fleets", extra={"action": action})
                # Without it each ends the other's term within milliseconds.
                await asyncio.sleep(PACE.lease_s)

    def drive_under(self, services: SharedClients) -> None:
        """Drive all fleets with these services until ``end_drivers``."""
        self._leading = services
        for key in self._raws:
            self._drive(key)

    def driver_of(self, key: FleetKey) -> Reconciler | None:
        """Return the running driver of a fleet; None without one."""
        known = self._drivers.get(key)
        return None if known is None or known[1].done() else known[0]

    async def end_drivers(self) -> None:
        """End every driver and start no other."""
        self._leading = None
        tasks = [task for _, task in self._drivers.values()]
        self._drivers.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # The next leader exports them: Prometheus would add up both.
        metrics.FLEETS.clear()

    def _pods_changed(self, key: FleetKey) -> None:
        if key in self._drivers:
            self._drivers[key][0].wake()

    async def _beat(self) -> None:
        while True:
            self._health.beat()
            for task in self._tasks:
                if (defect := _defect_of(task)) is not None:
                    # All fleets need it: exit, and let the kubelet restart the container.
                    _log.critical("Operator loop failed, exiting", exc_info=defect)
                    raise SystemExit(1)
            self._replace_failed()
            await asyncio.sleep(_BEAT_S)

    def _replace_failed(self) -> None:
        """Remove each failed driver, and start another after its back-off."""
        for key, (_, task) in list(self._drivers.items()):
            if (defect := _defect_of(task)) is None:
                continue
            del self._drivers[key]
            now, (failures, begun) = time.monotonic(), self._failed.get(key, (0, 0.0))
            failures = _BACKOFF.failed(failures, now - begun)
            pause_s = _BACKOFF.pause_s(failures)
            self._failed[key] = failures, now + pause_s
            metrics.DRIVER_FAILURES.labels(namespace=key[0], fleet=key[1]).inc()
            extra = {"namespace": key[0], "fleet": key[1], "again_in_s": pause_s}
            _log.critical("Fleet driver failed", exc_info=defect, extra=extra)
        for key in self._failed:
            if key not in self._drivers:
                self._drive(key)


def _defect_of(task: asyncio.Task[Any]) -> BaseException | None:
    """Return the exception that ended a task; None if it runs, was cancelled or succeeded."""
    return task.exception() if task.done() and not task.cancelled() else None


async def _driven(driver: Reconciler, before: asyncio.Task[None] | None) -> None:
    """Run a driver once the one before it has ended."""
    if before is not None:
        await asyncio.wait({before})
    await driver.run()


def _key(raw: Json) -> FleetKey:
    return raw["metadata"]["namespace"], raw["metadata"]["name"]


def _spec_key(raw: Json) -> tuple[str, int]:
    """Return UID and generation, of which one changes with the spec or with a new fleet."""
    return raw["metadata"]["uid"], int(raw["metadata"]["generation"])


async def _election(settings: OperatorSettings, health: metrics.Health) -> Election:
    if not settings.lease_name:
        return Unopposed()
    kube = await KubeClient.connect()
    return LeaseElection(kube, settings.lease_namespace, settings.lease_name, health)
