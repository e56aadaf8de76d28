"""Pause, resume and flush of a whole fleet.

This module records the request in status.trainerPause and polls the workers' state. The driver
sends the commands under its own epoch (core/strategy/trainer_pause.py). So every operator process
can serve the request, and a restart of the leader does not lose it.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from uuid import uuid4

from rlfleet_contract.single_flight import SingleFlight
from rlfleet_operator.core.backoff import Backoff
from rlfleet_operator.core.model.world import Fleet
from rlfleet_operator.core.trainer import pause_rules as rules
from rlfleet_operator.core.trainer.pause_rules import PauseReply, PauseRequested
from rlfleet_operator.core.trainer.replies import WorkerState
from rlfleet_operator.kube.client import Json
from rlfleet_operator.kube.pod_cache import FleetKey
from rlfleet_operator.trainer_api.records import FleetView

_MARGIN_S = 10.0
"""Added to the timeout of a worker's own step."""
_LOOKS = Backoff(0.1, 1.0)
PauseAnswer = tuple[int, PauseReply]
IsDone = Callable[[WorkerState], bool]


class FleetPauses:
    """The routes pause, resume and flush_cache."""

    def __init__(self, view: FleetView) -> None:
        """Read and record fleets through ``view``."""
        self._view = view
        self._begun = SingleFlight[object]()

    async def pause(
        self, key: FleetKey, token: str, asked: PauseRequested, is_done: IsDone | None = None
    ) -> PauseAnswer:
        """Pause every worker; if one fails to pause, resume the others.

        A fleet that was paused before stays paused, because its trainer may be amid a change.
        Continues after a disconnect of the client, because else paused workers might not resume.
        """
        return await self._begun.join(
            object(), lambda: self._pause(key, token, asked, is_done or _is_paused)
        )

    async def _pause(
        self, key: FleetKey, token: str, asked: PauseRequested, is_done: IsDone
    ) -> PauseAnswer:
        fresh = f"fleet-pause-{uuid4().hex[:12]}"
        fleet = await self._paused(key, asked, fresh)
        known = fleet.pause_at(time.time())
        operation = known.operation if known else fresh
        limit_s = asked.timeout_s or fleet.spec.rollout.timeouts.pause_seconds + _MARGIN_S

        def is_over(seen: Fleet, workers: Sequence[WorkerState]) -> bool:
            now = seen.pause_at(time.time())
            failed = any(rules.is_given_up(worker, operation) for worker in workers)
            return failed or now is None or now.operation != operation

        fleet, workers, all_did = await self._seen(key, token, limit_s, is_done, is_over)
        if all_did or operation != fresh:
            return _reply(fleet, workers, is_done, "are paused")
        fleet = await self._withdrawn(key, operation)
        return _reply(fleet, workers, is_done, "paused", "these resume; pause again")

    async def resume(
        self, key: FleetKey, token: str, asked: PauseRequested, is_done: IsDone = WorkerState.serves
    ) -> PauseAnswer:
        """Resume every worker; raises Refusal after a failed update."""
        _, workers = await self._view.observed(key, token)

        def ended(fleet: Fleet, raw: Json) -> Json | None:
            rules.demand_quiet(fleet, raw, "resume")
            pause = fleet.pause_at(time.time())
            if pause is None:
                return None
            rules.demand_resumable(pause, workers)
            return rules.record_of_pause(raw, pause.model_copy(update={"ending": True}))

        fleet = await self._begun.join(object(), lambda: self._view.record(key, ended))
        limit_s = asked.timeout_s or fleet.spec.rollout.timeouts.resume_seconds + _MARGIN_S
        fleet, workers, _ = await self._seen(key, token, limit_s, is_done)
        return _reply(fleet, workers, is_done, "serve")

    async def flush(self, key: FleetKey, token: str, asked: PauseRequested) -> PauseAnswer:
        """Empty the KV and prefix caches of every worker of a paused fleet."""

        def counted(fleet: Fleet, raw: Json) -> Json:
            rules.demand_quiet(fleet, raw, "flush_cache")
            pause = rules.demand_paused(fleet, time.time())
            one_more = rules.kept(pause, time.time(), flushes=pause.flushes + 1)
            return rules.record_of_pause(raw, one_more)

        fleet = await self._begun.join(object(), lambda: self._view.record(key, counted))
        pause = rules.demand_paused(fleet, time.time())
        limit_s = asked.timeout_s or fleet.spec.rollout.timeouts.flush_seconds + _MARGIN_S

        def is_flushed(worker: WorkerState) -> bool:
            done = worker.report.flushed if worker.report else None
            return worker.is_paused and done == pause.flush_operation

        def is_over(seen: Fleet, workers: Sequence[WorkerState]) -> bool:
            failed = any(rules.is_given_up(w, pause.flush_operation) for w in workers)
            return failed or seen.pause_at(time.time()) is None

        fleet, workers, _ = await self._seen(key, token, limit_s, is_flushed, is_over)
        return _reply(fleet, workers, is_flushed, "emptied their caches")

    async def _paused(self, key: FleetKey, asked: PauseRequested, fresh: str) -> Fleet:
        def begun(fleet: Fleet, raw: Json) -> Json:
            rules.demand_quiet(fleet, raw, "pause")
            now = time.time()
            return rules.record_of_pause(raw, rules.paused(fleet.pause_at(now), asked, now, fresh))

        return await self._view.record(key, begun)

    async def _withdrawn(self, key: FleetKey, operation: str) -> Fleet:
        """End the pause, unless another one has replaced it."""

        def ended(fleet: Fleet, raw: Json) -> Json | None:
            pause = fleet.status.trainer_pause
            if pause is None or pause.operation != operation:
                return None
            return rules.record_of_pause(raw, pause.model_copy(update={"ending": True}))

        return await self._view.record(key, ended)

    async def _seen(
        self,
        key: FleetKey,
        token: str,
        limit_s: float,
        is_done: Callable[[WorkerState], bool],
        is_over: Callable[[Fleet, Sequence[WorkerState]], bool] = lambda _fleet, _workers: False,
    ) -> tuple[Fleet, list[WorkerState], bool]:
        """Poll the workers until all are done, ``is_over`` holds, or the timeout is over."""
        deadline, looks = time.monotonic() + limit_s, iter(_LOOKS)
        while True:
            fleet, workers = await self._view.observed(key, token)
            all_did = bool(workers) and all(map(is_done, workers))
            left_s = deadline - time.monotonic()
            if all_did or left_s <= 0 or is_over(fleet, workers):
                return fleet, workers, all_did
            await asyncio.sleep(min(next(looks), left_s))


def _is_paused(worker: WorkerState) -> bool:
    return worker.is_paused


def _reply(
    fleet: Fleet,
    workers: Sequence[WorkerState],
    is_done: Callable[[WorkerState], bool],
    what: str,
    hint: str = "send the same request again",
) -> PauseAnswer:
    return rules.pause_reply(fleet, workers, is_done, what, moment=time.time(), hint=hint)
