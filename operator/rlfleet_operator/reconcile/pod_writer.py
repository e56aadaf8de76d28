"""Writes the pods of one fleet in a task, those of one pass at a time.

Pods that the API server refuses to create, as by a quota, wait longer each time: every event of a
worker makes a pass, which plans them again.
"""

import asyncio
import time
from collections.abc import Callable, Sequence

from rlfleet_operator.core.backoff import Backoff
from rlfleet_operator.core.manifests.pod_manifest import Defaults
from rlfleet_operator.core.model.actions import CreatePod, DeletePod, PodAction, first_of_each
from rlfleet_operator.core.model.world import Fleet
from rlfleet_operator.kube import apply
from rlfleet_operator.kube.client import KubeClient
from rlfleet_operator.reconcile import object_errors
from rlfleet_operator.reconcile.object_errors import ObjectFailure
from rlfleet_operator.reconcile.owned_objects import INTERVAL_S

_RETRY_S = 5.0
"""The longest pause before pods are written again after an error that may pass."""
_BATCH = 128
"""The number of pods created, deleted or marked before the next observation."""
_BACKOFF = Backoff(1.0, INTERVAL_S)
"""Between creations of which none succeeded."""


class PodWriter:
    """Writes the pods of one fleet."""

    def __init__(self, kube: KubeClient, defaults: Defaults, wake: Callable[[], None]) -> None:
        """Start with nothing written; ``wake`` starts the driver's next pass."""
        self._kube, self._defaults, self._wake = kube, defaults, wake
        self.trouble: ObjectFailure | None = None
        """Why the last write of pods failed; None after a success."""
        self._writing: asyncio.Task[None] | None = None
        self._is_behind = False  # Whether more pods are waiting to be written.
        self._generation = 0
        self._failures, self._held_until = 0, 0.0
        """How often in a row no pod was created, and when a refused one may be tried again."""
        self._refused: frozenset[PodAction] = frozenset()

    def begin(self, fleet: Fleet, actions: Sequence[PodAction]) -> None:
        """Write what is due of one pass, unless an earlier pass is still being written."""
        due = self._due(fleet, actions)
        if self._writing is not None and not self._writing.done():
            self._is_behind = bool(due)
            return
        if self._writing is not None:
            self._writing.result()
        batch = first_of_each(due, _BATCH)
        self._is_behind = len(due) > len(batch)
        is_whole = len(due) == len(actions)
        self._writing = asyncio.create_task(self._write(fleet, batch, is_whole=is_whole))

    def _due(self, fleet: Fleet, actions: Sequence[PodAction]) -> Sequence[PodAction]:
        """Return the actions without the creations in back-off; with another spec none waits."""
        if fleet.generation != self._generation or not _creations(actions):
            self._failures, self._held_until = 0, 0.0
        self._generation = fleet.generation
        if time.monotonic() >= self._held_until:
            self._refused = frozenset()
        # Of another worker nothing is known: one name that is taken must not delay its pod.
        return [a for a in actions if a not in self._refused]

    def retry_in_s(self) -> float:
        """Return the seconds until pods are written without an event."""
        is_soon = self._is_behind or (self.trouble is not None and self.trouble.may_pass)
        left_s = self._held_until - time.monotonic()
        return min(_RETRY_S if is_soon else INTERVAL_S, left_s if left_s > 0 else INTERVAL_S)

    async def _write(self, fleet: Fleet, batch: Sequence[PodAction], *, is_whole: bool) -> None:
        creations = _creations(batch)
        unmade, unwritten = await asyncio.gather(
            apply.pods(self._kube, fleet, creations, self._defaults),
            apply.pods(self._kube, fleet, _others(batch), self._defaults),
        )
        errors, before, now = [*unmade, *unwritten], self.trouble, time.monotonic()
        if errors or is_whole:
            # Without the pods that wait, a success does not show that they can be created.
            self.trouble = object_errors.after(errors, before, now)
        is_refused = bool(creations) and len(unmade) == len(creations)
        if creations:
            self._hold(now, creations if is_refused else ())
        gets_on = self._is_behind and len(errors) < len(batch)
        if is_refused or gets_on or (self.trouble is None) != (before is None):
            # Status has to report it, a retry may succeed at once, or the next one is due.
            self._wake()

    def _hold(self, now: float, refused: Sequence[PodAction]) -> None:
        self._failures = self._failures + 1 if refused else 0
        self._refused = self._refused.union(refused) if refused else frozenset()
        pause_s = _BACKOFF.pause_s(self._failures) if refused else 0.0
        may_pass = self.trouble is not None and self.trouble.may_pass
        self._held_until = now + (min(pause_s, _RETRY_S) if may_pass else pause_s)

    async def close(self) -> None:
        """End the task; what it has sent may still be written."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)


def _creations(actions: Sequence[PodAction]) -> list[PodAction]:
    return [action for action in actions if _needs_acceptance(action)]


def _others(actions: Sequence[PodAction]) -> list[PodAction]:
    return [action for action in actions if not _needs_acceptance(action)]


def _needs_acceptance(action: PodAction) -> bool:
    """Return whether the API server must accept a new pod for it, now or as a trial."""
    match action:
        case CreatePod():
            return True
        case DeletePod(successor=int()):
            return True
        case _:
            return False
