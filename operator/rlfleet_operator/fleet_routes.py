"""One address for every fleet: /fleets/NAMESPACE/NAME/v1/rl/..., for trainers.

Any process of the operator answers, whoever leads (docs/decisions/0015): a version that is
asked for is recorded in the fleet's status by compare-and-swap, as a user's patch records
one in the spec, and the driver rolls it out. The handler then only watches, so that a
client that goes away, or a process that ends, changes nothing.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from aiohttp import web
from pydantic import BaseModel

from rlfleet_operator import execute, hearing
from rlfleet_operator.adapters import metrics
from rlfleet_operator.adapters.kube import Json, fleet_path
from rlfleet_operator.adapters.pods import FleetKey
from rlfleet_operator.core import answers
from rlfleet_operator.core.answers import Course, Heard
from rlfleet_operator.core.trainers import (
    MEANINGS,
    Fault,
    Refusal,
    Refused,
    demand_free,
    record_of,
    update_from,
    version_asked,
)
from rlfleet_operator.core.world import Fleet, fleet_from
from rlfleet_operator.errors import Conflict, Missing, OperatorError, Retryable
from rlfleet_operator.fleet_access import Access
from rlfleet_operator.fleets import Fleets
from rlfleet_operator.settings import Settings

_log = logging.getLogger(__name__)

_BODY_LIMIT = 64 * 1024
_ATTEMPTS = 20
"""How often a record is tried: the driver writes the same object once a second at most."""
_LOOK_S = 1.0
"""How often workers are asked that have to catch up after their rollout has completed."""
_SHUTDOWN_S = 0.5
"""How long a request that is under way may hold up the end of this process."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_TOKEN = web.RequestKey("token", str)


class FleetRoutes:
    """The server of the fleets' address."""

    def __init__(self, fleets: Fleets, settings: Settings) -> None:
        """Serve these fleets; ``open`` begins."""
        self._fleets, self._settings = fleets, settings
        self._access = Access(self._token)
        self._runner: web.AppRunner | None = None

    async def open(self) -> None:
        """Listen, if the settings name a port."""
        if not self._settings.fleets_port:
            return
        # A client that is gone is not waited for.
        self._runner = web.AppRunner(
            self._app(),
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=_SHUTDOWN_S,
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, port=self._settings.fleets_port).start()

    async def close(self) -> None:
        """End; who waits sees a broken connection and may ask again."""
        if self._runner is not None:
            await self._runner.cleanup()

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._guarded], client_max_size=_BODY_LIMIT)
        base = "/fleets/{namespace}/{name}"
        app.router.add_get(f"{base}/v1/rl/workers", self._workers, name="workers")
        app.router.add_get(f"{base}/v1/rl/state", self._state, name="state")
        app.router.add_post(f"{base}/v1/rl/update_weights", self._update, name="update_weights")
        app.router.add_route("*", base + "/{rest:.*}", _nowhere, name="none")
        return app

    # --- whoever asks ---------------------------------------------------------------------------

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let in whoever has the token, and answer what goes wrong in our words."""
        try:
            known = self._fleets.known(_key(request))
            authorization = request.headers.get("Authorization")
            request[_TOKEN] = await self._access.demand(known, authorization)
            response = await handler(request)
        except Exception as error:  # noqa: BLE001 - the boundary: each becomes an answer
            response = _refused(error)
        name = request.match_info.route.name or "none"
        metrics.TRAINER_REQUESTS.labels(route=name, code=str(response.status)).inc()
        return response

    async def _workers(self, request: web.Request) -> web.Response:
        fleet, workers = await self._heard(request)
        port = self._settings.admin_port
        return _json(200, answers.discovery(fleet, workers, port), exclude_none=True)

    async def _state(self, request: web.Request) -> web.Response:
        fleet, workers = await self._heard(request)
        return _json(200, answers.state(fleet, workers))

    async def _update(self, request: web.Request) -> web.Response:
        asked = update_from(await request.read())
        fleet = self._fleet(_key(request))
        version = version_asked(asked, fleet)
        # Once begun it is brought to its end: a record is there or is not, whoever listens.
        await asyncio.shield(self._record(_key(request), version))
        limit_s = asked.timeout_s or fleet.spec.rollout.progress_deadline_seconds
        fleet, workers = await self._ended(request, version, time.monotonic() + limit_s)
        status, reply = answers.updated(fleet, workers, version)
        _log.info(
            "answered a trainer's update",
            extra={**_about(_key(request)), "version": version, "code": status},
        )
        return _json(status, reply)

    async def _token(self, raw: Json) -> str:
        return await execute.known_token(self._fleets.kube, fleet_from(raw))

    # --- what is known --------------------------------------------------------------------------

    def _fleet(self, key: FleetKey) -> Fleet:
        raw = self._fleets.known(key)
        if raw is None:
            raise Refusal(Fault.NOT_FOUND, f"fleet {key[1]} in {key[0]} is gone")
        return fleet_from(raw)

    async def _heard(self, request: web.Request) -> tuple[Fleet, list[Heard]]:
        """Return the fleet and what its workers say of themselves now."""
        key = _key(request)
        pods = {n: p for n, p in self._fleets.pods_of(key).items() if not p.terminating}
        said = await hearing.reports(pods, request[_TOKEN], self._settings.admin_port)
        fleet = self._fleet(key)
        return fleet, answers.heard_of(fleet, pods, said)

    # --- an update ------------------------------------------------------------------------------

    async def _record(self, key: FleetKey, version: str) -> None:
        """Put on record that a trainer asks for a version, unless it does already."""
        for _ in range(_ATTEMPTS):
            raw = await self._fleets.kube.get(fleet_path(*key))
            fleet = fleet_from(raw)
            demand_free(fleet, raw, version)
            if fleet.target != version:
                try:
                    raw = await self._fleets.kube.patch(
                        fleet_path(*key) + "/status", record_of(raw, version, time.time())
                    )
                except Conflict:
                    continue
                if fleet_from(raw).target != version:
                    raise Retryable("status.trainerTarget was not kept: upgrade the definition")
                _log.info("a trainer asks for a version", extra={**_about(key), "version": version})
            self._fleets.deliver(None, raw)
            return
        raise Retryable(f"the fleet's status was written {_ATTEMPTS} times in between: ask again")

    async def _ended(
        self, request: web.Request, version: str, deadline: float
    ) -> tuple[Fleet, list[Heard]]:
        """Wait until the version was proved by all, or will not be, or the time is over."""
        key = _key(request)
        while True:
            at = answers.course(self._fleet(key), version)
            left_s = deadline - time.monotonic()
            if at is not Course.UNDER_WAY or left_s <= 0:
                fleet, workers = await self._heard(request)
                # Those that were replaced since the end of the rollout are waited for.
                is_open = at is Course.COMPLETED and not answers.is_proved(workers, version)
                if not is_open or left_s <= 0:
                    return fleet, workers
                left_s = min(left_s, _LOOK_S)
            await self._fleets.news(key, left_s)


def _key(request: web.Request) -> FleetKey:
    found = request.match_info
    return found.get("namespace", ""), found.get("name", "")


def _about(key: FleetKey) -> dict[str, str]:
    return {"namespace": key[0], "fleet": key[1]}


async def _nowhere(request: web.Request) -> web.StreamResponse:
    raise Refusal(Fault.NOT_FOUND, f"there is no route {request.method} {request.path:.200}")


# --- answers --------------------------------------------------------------------------------------


def _json(status: int, reply: BaseModel, *, exclude_none: bool = False) -> web.Response:
    text = reply.model_dump_json(exclude_none=exclude_none)
    return web.Response(status=status, text=text, content_type="application/json")


def _refused(error: Exception) -> web.Response:
    """Return the answer that an error is."""
    refusal = error if isinstance(error, Refusal) else _refusal(error)
    meaning = MEANINGS[refusal.fault]
    said = Refused(code=refusal.fault, message=refusal.message, retryable=meaning.retryable)
    response = _json(meaning.status, said)
    if refusal.fault is Fault.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _refusal(error: Exception) -> Refusal:
    match error:
        case Missing():
            return Refusal(Fault.NOT_FOUND, str(error))
        case OperatorError():
            return Refusal(Fault.UNAVAILABLE, str(error))
        case web.HTTPClientError():
            return Refusal(Fault.INVALID_REQUEST, f"{error.status} {error.reason}")
        case _:
            _log.error("a trainer's request failed for a reason of ours", exc_info=error)
            return Refusal(Fault.INTERNAL, type(error).__name__)
