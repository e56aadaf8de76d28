"""The routes of prime-rl's classic client, for a whole fleet at one URL.

Each route calls the one of /v1/rl and translates the reply (core/trainer/prime_rl.py). So the
fleet may be scaled, and a pod may be replaced, during an update.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from rlfleet_operator.core.trainer import prime_rl
from rlfleet_operator.core.trainer.models import Fault, Refusal, Updated
from rlfleet_operator.core.trainer.pause_rules import PauseReply, asked_from
from rlfleet_operator.kube.pod_cache import FleetKey
from rlfleet_operator.trainer_api.pause import FleetPauses, PauseAnswer
from rlfleet_operator.trainer_api.records import FleetView
from rlfleet_operator.trainer_api.update import FleetUpdates

_OK, _UNAVAILABLE, _LOOK_S = 200, 503, 1.0


class PrimeRLRoutes:
    """The routes that prime-rl's client calls."""

    def __init__(self, view: FleetView, pauses: FleetPauses, updates: FleetUpdates) -> None:
        """Answer by these implementations of /v1/rl."""
        self._view, self._pauses, self._updates = view, pauses, updates

    async def answer(
        self, name: str, key: FleetKey, token: str, request: web.Request
    ) -> tuple[int, Mapping[str, Any]]:
        """Return HTTP status and body for a route of core/trainer/routes.CLASSIC."""
        match name:
            case "health":
                return await self._health(key, token)
            case "v1/models":
                return _OK, prime_rl.models_of(self._view.fleet(key))
            case "pause":
                asked = asked_from(await request.read(), request.query)
                said = await _quietly(
                    self._view,
                    key,
                    lambda: self._pauses.pause(key, token, asked, prime_rl.rests),
                )
                return _said(*said, status="paused")
            case "resume":
                asked = asked_from(b"", {})
                said = await _quietly(
                    self._view, key, lambda: self._pauses.resume(key, token, asked, prime_rl.runs)
                )
                return _said(*said, status="resumed")
            case "update_weights":
                return await self._update(key, token, await request.read())
            case _:
                refusal = prime_rl.unserved(request.path)
                await self._updates.blame(key, refusal)
                raise refusal

    async def _health(self, key: FleetKey, token: str) -> tuple[int, Mapping[str, Any]]:
        _, workers = await self._view.observed(key, token)
        if prime_rl.is_healthy(workers):
            return _OK, {"status": "ok"}
        well = sum(map(prime_rl.is_well, workers))
        message = f"{well} of {len(workers)} workers serve or are paused; wait for the others"
        return _UNAVAILABLE, {"status": "error", "code": Fault.INCOMPLETE, "message": message}

    async def _update(
        self, key: FleetKey, token: str, body: bytes
    ) -> tuple[int, Mapping[str, Any]]:
        asked = await self._updates.asked(key, lambda: prime_rl.update_of(body))
        said = await self._updates.update(key, token, asked, prime_rl.UPDATE_S)
        return _said(*said, status="ok")


async def _quietly(
    view: FleetView, key: FleetKey, act: Callable[[], Awaitable[PauseAnswer]]
) -> PauseAnswer:
    """Retry while a rollout is under way, because prime-rl gives up after ten quick errors."""
    deadline = time.monotonic() + prime_rl.QUIET_S
    while True:
        try:
            return await act()
        except Refusal as refusal:
            left_s = deadline - time.monotonic()
            if refusal.fault is not Fault.ROLLOUT_RUNS or left_s <= 0:
                raise
        await view.news(key, min(left_s, _LOOK_S))


def _said(code: int, reply: PauseReply | Updated, *, status: str) -> tuple[int, Mapping[str, Any]]:
    """Return a reply of /v1/rl with the status that prime-rl expects."""
    fields = reply.model_dump(mode="json")
    if reply.code is None:
        return code, fields | {"status": status}
    return prime_rl.status_of(reply.code, retryable=reply.retryable), fields
