"""Watches one fleet through the API and records the time of every state."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from dev.steps import StepFailed
from rlfleet_operator.errors import OperatorError
from rlfleet_operator.kube.client import Json, KubeClient, WatchEnded, fleet_path


@dataclass(frozen=True, slots=True)
class Seen:
    """One state of the fleet, and when it arrived here."""

    at: float
    raw: Json

    @property
    def status(self) -> dict[str, Any]:
        """The status, empty before the first."""
        return self.raw.get("status") or {}

    def has_proved(self, version: str) -> bool:
        """Whether status reports, for the current generation, that all workers proved it."""
        status, spec = self.status, self.raw["spec"]
        return bool(
            status.get("observedGeneration") == self.raw["metadata"]["generation"]
            and status.get("target") == version
            and status.get("provedReplicas") == spec["replicas"]
            and (status.get("rollout") or {}).get("phase") == "Completed"
        )


class Witness:
    """Keeps what was seen since the last ``forget``."""

    def __init__(self, kube: KubeClient, namespace: str, name: str) -> None:
        self._kube, self._namespace, self.name = kube, namespace, name
        self.seen: list[Seen] = []
        self._news = asyncio.Event()

    @asynccontextmanager
    async def watching(self) -> AsyncIterator["Witness"]:
        """Watch until left."""
        task = asyncio.create_task(self._follow())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _follow(self) -> None:
        collection = fleet_path(self._namespace, "").rstrip("/")
        while True:
            try:
                version = (await self._kube.get(collection))["metadata"]["resourceVersion"]
                async for kind, raw in self._kube.watch(collection, version):
                    if kind != "BOOKMARK" and raw["metadata"]["name"] == self.name:
                        self.seen.append(Seen(time.time(), raw))
                        self._news.set()
            except (OperatorError, WatchEnded):
                await asyncio.sleep(0.5)

    def forget(self) -> None:
        """Forget all states."""
        self.seen = []

    def writes(self) -> list[float]:
        """Return when the status was written: each state that differs from the one before."""
        pairs = zip(self.seen, self.seen[1:], strict=False)
        return [new.at for old, new in pairs if new.status != old.status]

    async def until(self, is_it: Callable[[Seen], bool], timeout_s: float) -> Seen:
        """Return the first state for which it is so."""
        looked_at = 0
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    self._news.clear()
                    for seen in self.seen[looked_at:]:
                        if is_it(seen):
                            return seen
                    looked_at = len(self.seen)
                    await self._news.wait()
        except TimeoutError:
            last = self.seen[-1].status if self.seen else {}
            fields = {key: last.get(key) for key in ("target", "proved", "rollout", "conditions")}
            what = f"timeout after {timeout_s:.0f} s; last status"
            raise StepFailed(f"{self.name}: {what}: {fields}") from None
