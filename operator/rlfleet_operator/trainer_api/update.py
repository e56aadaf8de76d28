"""A trainer's update of a whole fleet: recorded in status, then only watched.

A started record must complete even if the client disconnects. The reason of a rejected update
must be recorded, because trainers send a resume afterwards in any case.
"""

import logging
import time
from collections.abc import Callable

from rlfleet_contract.single_flight import SingleFlight
from rlfleet_operator.core.model.world import Fleet
from rlfleet_operator.core.trainer import replies
from rlfleet_operator.core.trainer.models import (
    Refusal,
    Updated,
    UpdateWeights,
    demand_free,
    record_of,
    version_asked,
)
from rlfleet_operator.core.trainer.pause_rules import record_of_pause, refused
from rlfleet_operator.core.trainer.replies import UpdateProgress, WorkerState
from rlfleet_operator.kube.client import Json
from rlfleet_operator.kube.pod_cache import FleetKey
from rlfleet_operator.trainer_api.records import FleetView

_log = logging.getLogger(__name__)
_LOOK_S = 1.0
"""The poll interval for workers that catch up after the rollout has completed."""


class FleetUpdates:
    """The route update_weights."""

    def __init__(self, view: FleetView) -> None:
        """Read and record fleets through ``view``."""
        self._view = view
        self._begun = SingleFlight[object]()

    async def asked(self, key: FleetKey, read: Callable[[], UpdateWeights]) -> UpdateWeights:
        """Parse the request; record its rejection."""
        try:
            return read()
        except Refusal as refusal:
            await self.blame(key, refusal)
            raise

    async def update(
        self, key: FleetKey, token: str, asked: UpdateWeights, most_s: float | None = None
    ) -> tuple[int, Updated]:
        """Record the version; return the result of its rollout, or its state after the timeout."""
        # Shielded, so that a disconnect cannot leave it unknown whether the version is recorded.
        version = await self._begun.join(object(), lambda: self._record(key, asked))
        own_s = float(self._view.fleet(key).spec.rollout.progress_deadline_seconds)
        limit_s = asked.timeout_s or min(own_s, most_s or own_s)
        fleet, workers = await self._ended(key, token, version, time.monotonic() + limit_s)
        status, reply = replies.updated(fleet, workers, version)
        _log.info(
            "Answered a trainer's update", extra={**about(key), "version": version, "code": status}
        )
        return status, reply

    async def blame(self, key: FleetKey, refusal: Refusal) -> None:
        """Record why an update was rejected, so that the trainer's next resume is rejected too."""

        def make_patch(fleet: Fleet, raw: Json) -> Json | None:
            pause = fleet.pause_at(time.time())
            return None if pause is None else record_of_pause(raw, refused(pause, refusal.message))

        await self._view.record(key, make_patch)

    async def _record(self, key: FleetKey, asked: UpdateWeights) -> str:
        """Record the requested version, unless it is recorded already."""

        def make_patch(fleet: Fleet, raw: Json) -> Json | None:
            version, now = version_asked(asked, fleet), time.time()
            demand_free(fleet, raw, version)
            pause = fleet.pause_at(now)
            if fleet.target == version and (pause is None or pause.is_about(version)):
                return None
            _log.info("Trainer requested a version", extra={**about(key), "version": version})
            return record_of(raw, version, now, pause)

        try:
            fleet = await self._view.record(key, make_patch)
        except Refusal as refusal:
            await self.blame(key, refusal)
            raise
        return version_asked(asked, fleet)

    async def _ended(
        self, key: FleetKey, token: str, version: str, deadline: float
    ) -> tuple[Fleet, list[WorkerState]]:
        """Wait until all workers have proved the version, its rollout failed, or the deadline."""
        while True:
            at = replies.course(self._view.fleet(key), version)
            left_s = deadline - time.monotonic()
            if at is not UpdateProgress.UNDER_WAY or left_s <= 0:
                fleet, workers = await self._view.observed(key, token)
                # Wait also for workers that were replaced since the end of the rollout.
                is_open = at is UpdateProgress.COMPLETED and not replies.is_proved(workers, version)
                if not is_open or left_s <= 0:
                    return fleet, workers
                left_s = min(left_s, _LOOK_S)
            await self._view.news(key, left_s)


def about(key: FleetKey) -> dict[str, str]:
    """Return the fleet for a log line."""
    return {"namespace": key[0], "fleet": key[1]}
