"""Checks during the whole run that no forbidden state occurs.

It reads an engine's version and gate from the fake engine itself, and a sidecar's state from its
journal on disk, so that no request of the monitor changes what is tested.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from faults.cell import Cell
from faults.workers import Kept
from rlfleet_operator.core.model.world import FLEET_LABEL, ORDINAL_LABEL
from rlfleet_operator.errors import OperatorError
from rlfleet_operator.kube.client import Json, WatchEnded, fleet_path
from tests.hollow import Hollow

_LOOK_S = 0.03
_DOUBT_S = 5.0
"""How soon a worker in doubt has to be out of traffic."""
_MONOTONE = (("observedGeneration",), ("epoch",), ("rollout", "id"))


@dataclass
class _Fleet:
    """What is known of one fleet."""

    raw: Json
    reached: dict[tuple[str, ...], int] = field(default_factory=dict)
    served: set[int] = field(default_factory=set)
    """Ordinals that were in service once, with the present spec asking for them ever since."""
    struck: set[int] = field(default_factory=set)
    """Ordinals that the fault, or the workload, took out."""


class Monitor:
    """Collects what was broken on the way."""

    def __init__(self, cell: Cell) -> None:
        """Look at one run."""
        self._cell = cell
        self._fleets: dict[str, _Fleet] = {}
        self._doubted: dict[str, float] = {}
        self.broken: list[str] = []

    @asynccontextmanager
    async def looking(self) -> AsyncIterator["Monitor"]:
        """Look until left."""
        tasks = [asyncio.ensure_future(self._follow()), asyncio.ensure_future(self._look())]
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _say(self, what: str) -> None:
        if what not in self.broken:
            self.broken.append(what)

    # --- what fleets say --------------------------------------------------------------------------

    async def _follow(self) -> None:
        path = fleet_path(self._cell.namespace, "").rstrip("/")
        while True:
            try:
                listed = await self._cell.kube.get(path)
                for raw in listed["items"]:
                    self._event("ADDED", raw)
                version = listed["metadata"]["resourceVersion"]
                async for kind, raw in self._cell.kube.watch(path, version):
                    self._event(kind, raw)
            except (OperatorError, WatchEnded):
                await asyncio.sleep(0.1)

    def _event(self, kind: str, raw: Json) -> None:
        if kind == "BOOKMARK":
            return
        name = raw["metadata"]["name"]
        if kind == "DELETED":
            self._fleets.pop(name, None)
            return
        fleet = self._fleets.setdefault(name, _Fleet(raw))
        fleet.raw = raw
        fleet.served &= set(range(raw["spec"]["replicas"]))
        for way in _MONOTONE:
            value = _at(raw.get("status") or {}, way)
            if value is not None and value < fleet.reached.get(way, value):
                self._say(f"{name}: {'.'.join(way)} went back to {value}")
            if value is not None:
                fleet.reached[way] = value

    # --- what workers do --------------------------------------------------------------------------

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            for name, fleet in list(self._fleets.items()):
                if "deletionTimestamp" not in fleet.raw["metadata"]:
                    self._check(fleet, self._pods_of(name))

    def _pods_of(self, fleet: str) -> dict[int, tuple[Hollow, Kept]]:
        found = {}
        for name, pod in self._cell.hollow().items():
            labels = pod.raw["metadata"]["labels"]
            if labels[FLEET_LABEL] == fleet:
                found[int(labels[ORDINAL_LABEL])] = (pod, self._cell.worker(name))
        return found

    def _check(self, fleet: _Fleet, pods: dict[int, tuple[Hollow, Kept]]) -> None:
        for ordinal, (pod, worker) in pods.items():
            if worker.losses:
                fleet.struck.add(ordinal)
            self._check_truth(pod, worker)
            self._check_doubt(pod, worker)
        self._check_budget(fleet, pods)

    def _check_truth(self, pod: Hollow, worker: Kept) -> None:
        if not is_serving(worker):
            return
        held = self._cell.materials.versions.get(worker.engine.weights.exact, "unknown weights")
        written = worker.written()
        proved = written.state.get("proved") if written else None
        if held != proved:
            self._say(f"{pod.name} serves {held}, proved is {proved}")

    def _check_doubt(self, pod: Hollow, worker: Kept) -> None:
        written = worker.written()
        is_doubted = written is not None and written.state["stage"] == "Doubt"
        if not (is_doubted and is_ready(pod)):
            self._doubted.pop(pod.uid, None)
            return
        since = self._doubted.setdefault(pod.uid, time.monotonic())
        if time.monotonic() - since > _DOUBT_S:
            self._say(f"{pod.name} is in doubt and ready")

    def _check_budget(self, fleet: _Fleet, pods: dict[int, tuple[Hollow, Kept]]) -> None:
        wanted = range(fleet.raw["spec"]["replicas"])
        serving = {n for n, (pod, worker) in pods.items() if _in_service(pod, worker)}
        fleet.served |= serving & set(wanted)
        limit = _limit(fleet.raw["spec"])
        out = fleet.served - serving - fleet.struck
        if len(out) > limit:
            self._say(f"workers {sorted(out)} are out at once, at most {limit} may be")


def _limit(spec: Json) -> int:
    """Return how many workers may be out at once; a Barrier takes all of them."""
    rollout = spec["rollout"]
    return int(spec["replicas"] if rollout["strategy"] == "Barrier" else rollout["maxUnavailable"])


def is_serving(worker: Kept) -> bool:
    """Return whether the engine answers clients."""
    return worker.is_up and worker.engine.gate.is_open and worker.engine.paused is None


def is_ready(pod: Hollow) -> bool:
    """Return whether Kubernetes sends traffic to the pod."""
    found = (pod.raw.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in found)


def _in_service(pod: Hollow, worker: Kept) -> bool:
    return is_serving(worker) and "deletionTimestamp" not in pod.raw["metadata"]


def _at(tree: dict[str, Any], way: tuple[str, ...]) -> int | None:
    found: Any = tree
    for step in way:
        found = (found or {}).get(step)
    return found if isinstance(found, int) else None
