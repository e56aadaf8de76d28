"""A cache of all workers' pods, by one list and watch per namespace.

kopf's index takes quadratic time and keeps deleted pods (docs/decisions/0001). This cache drops
what a new list lacks, and keeps small records instead of JSON.

A namespace that RBAC forbids, as after its deletion, does not affect the others. It counts as
empty until it can be listed.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from rlfleet_operator.core.backoff import Backoff
from rlfleet_operator.core.model.pod import pod_from
from rlfleet_operator.core.model.worker_pod import Pod
from rlfleet_operator.core.model.world import FLEET_LABEL
from rlfleet_operator.errors import Forbidden, Missing, OperatorError
from rlfleet_operator.kube.client import Json, KubeClient, WatchEnded, object_path

_log = logging.getLogger(__name__)
_PAGE = "500"
_PAUSE_S = 1.0
_REFUSED = Backoff(_PAUSE_S, 60.0)
REFUSALS = 4
"""A namespace counts as empty after so many rejections, because a new role takes effect late."""

FleetKey = tuple[str, str]
"""(namespace, fleet)."""
Records = dict[FleetKey, dict[str, Pod]]
"""Pods by fleet and name."""


class PodCache:
    """The last observed state of all fleets' pods."""

    def __init__(
        self,
        kube: KubeClient,
        namespaces: tuple[str, ...],
        on_change: Callable[[FleetKey], None],
        silence_s: float,
    ) -> None:
        """Watch these namespaces (empty: all); call ``on_change`` for fleets whose pods change."""
        self._kube, self._silence_s = kube, silence_s
        self._is_everywhere = not namespaces
        self._paths = [object_path(n, "pods") for n in namespaces or ("",)]
        self._on_change = on_change
        self._records: dict[str, Records] = {}
        self._synced: set[str] = set()
        self.synced = asyncio.Event()
        """Set once every namespace was listed or rejected; before, a pod may only seem missing."""

    def of(self, key: FleetKey) -> dict[str, Pod]:
        """Return a fleet's pods by name."""
        found: dict[str, Pod] = {}
        for records in self._records.values():
            found |= records.get(key, {})
        return found

    def owned(self, key: FleetKey, uid: str | None) -> dict[str, Pod]:
        """Return a fleet's pods whose owner has this UID."""
        return {name: pod for name, pod in self.of(key).items() if pod.owner_uid == uid}

    async def run(self) -> None:
        """List and watch until cancelled."""
        await asyncio.gather(*(self._follow(path) for path in self._paths))

    async def _follow(self, path: str) -> None:
        refusals = 0
        while True:
            try:
                version = await self._list(path)
                refusals = 0
                while True:
                    begun = time.monotonic()
                    version = await self._watch(path, version)
                    if time.monotonic() - begun < _PAUSE_S:
                        # The next one may end at once too, as at a proxy that keeps no stream.
                        await asyncio.sleep(_PAUSE_S)
            except WatchEnded:
                _log.info("Pod watch expired, listing pods again", extra={"path": path})
                # The next one may expire at once too, as while the server's cache is rebuilt.
                await asyncio.sleep(_PAUSE_S)
            except (Forbidden, Missing) as error:
                refusals += 1
                await self._do_without(path, refusals, error)
            except OperatorError as error:
                _log.warning("Failed to watch pods", extra={"path": path, "error": str(error)})
                await asyncio.sleep(_PAUSE_S)

    async def _do_without(self, path: str, refusals: int, error: OperatorError) -> None:
        """Keep the last state of a rejected namespace and wait for the next attempt."""
        # Without any rights on pods the installation is broken: stay not ready.
        if refusals >= REFUSALS and not self._is_everywhere:
            self._count_in(path)
        rest_s = _REFUSED.pause_s(refusals)
        extra = {"path": path, "error": str(error), "again_in_s": rest_s}
        _log.warning("Failed to list pods: check RBAC and namespace", extra=extra)
        await asyncio.sleep(rest_s)

    def _count_in(self, path: str) -> None:
        self._synced.add(path)
        if len(self._synced) == len(self._paths):
            self.synced.set()

    async def _list(self, path: str) -> str:
        found: Records = {}
        version = ""
        async for page in self._kube.pages(path, labelSelector=FLEET_LABEL, limit=_PAGE):
            for raw in page["items"]:
                _note(found, raw)
            version = page["metadata"]["resourceVersion"]
        before = self._records.get(path, {})
        self._records[path] = found
        for key in before.keys() | found.keys():
            self._on_change(key)
        self._count_in(path)
        return version

    async def _watch(self, path: str, version: str) -> str:
        records = self._records[path]
        watch = self._kube.watch(
            path, version, silence_s=self._silence_s, labelSelector=FLEET_LABEL
        )
        async for kind, raw in watch:
            version = raw["metadata"]["resourceVersion"]
            if kind == "BOOKMARK":
                continue
            changed = _forget(records, raw) if kind == "DELETED" else _note(records, raw)
            for key in changed:
                self._on_change(key)
        return version


def _note(records: Records, raw: Json) -> set[FleetKey]:
    """Store a pod; return the fleets whose pods changed."""
    owner, pod = _owner(raw), pod_from(raw)
    known = records.get(owner, {}).get(raw["metadata"]["name"])
    if pod is not None and pod == known:
        return set()
    # Its labels may name another fleet now, or none.
    changed = _forget(records, raw) if known is None or pod is None else set()
    if pod is not None:
        records.setdefault(owner, {})[pod.name] = pod
        changed.add(owner)
    return changed


def _forget(records: Records, raw: Json) -> set[FleetKey]:
    """Remove a pod; return the fleets that it belonged to."""
    namespace, name = raw["metadata"]["namespace"], raw["metadata"]["name"]
    return {
        key
        for key, pods in records.items()
        if key[0] == namespace and pods.pop(name, None) is not None
    }


def _owner(raw: Json) -> FleetKey:
    metadata = raw["metadata"]
    return metadata["namespace"], (metadata.get("labels") or {}).get(FLEET_LABEL, "")
