"""The HTTP server of the fleet API: /fleets/NAMESPACE/NAME/v1/rl/..., for trainers.

Every operator process answers, a standby too (docs/decisions/0015). A handler records the
requested version in the fleet's status by compare-and-swap, and the driver rolls it out. Then the
handler only watches, so a client that disconnects, or a process that ends, changes nothing.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from aiohttp import web
from pydantic import BaseModel

from rlfleet_contract.reason_phrases import error_of, phrase_of
from rlfleet_contract.tls import serving_context
from rlfleet_operator import metrics
from rlfleet_operator.core.manifests.owned_objects import AdminToken
from rlfleet_operator.core.model.fleet import named
from rlfleet_operator.core.trainer import replies
from rlfleet_operator.core.trainer.models import Fault, Refusal, Rejection, update_from
from rlfleet_operator.core.trainer.pause_rules import PauseRequested, asked_from
from rlfleet_operator.core.trainer.routes import CLASSIC, OFFERS, label_of
from rlfleet_operator.errors import Missing, OperatorError
from rlfleet_operator.kube import apply
from rlfleet_operator.kube.client import Json
from rlfleet_operator.kube.pod_cache import FleetKey
from rlfleet_operator.reconcile.supervisor import Supervisor
from rlfleet_operator.settings import OperatorSettings
from rlfleet_operator.trainer_api.auth import TokenCache
from rlfleet_operator.trainer_api.page import PREFIX, FleetPage
from rlfleet_operator.trainer_api.pause import FleetPauses, PauseAnswer
from rlfleet_operator.trainer_api.prime_rl import PrimeRLRoutes
from rlfleet_operator.trainer_api.records import FleetView
from rlfleet_operator.trainer_api.update import FleetUpdates, about

_log = logging.getLogger(__name__)

_BODY_LIMIT = 64 * 1024
_ERROR = 400
_BASIC = 'Basic realm="rlfleet: any user, password is the token", charset="UTF-8"'
_SHUTDOWN_S = 0.5
"""How long the process waits for requests under way when it exits."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_Act = Callable[[FleetKey, str, PauseRequested], Awaitable[PauseAnswer]]
_TOKEN = web.RequestKey("token", str)


class FleetRoutes:
    """The HTTP server of the fleet API."""

    def __init__(self, fleets: Supervisor, settings: OperatorSettings) -> None:
        """Serve these fleets; ``open`` starts to listen."""
        self._fleets, self._settings = fleets, settings
        self._access = TokenCache(self._token)
        self._view = FleetView(fleets, settings.admin_port)
        self._pauses, self._updates = FleetPauses(self._view), FleetUpdates(self._view)
        self._classics = PrimeRLRoutes(self._view, self._pauses, self._updates)
        self._page = FleetPage(fleets, self._demand)
        self._runner: web.AppRunner | None = None

    async def open(self) -> None:
        """Listen, if the settings name a port."""
        if not self._settings.fleets_port:
            return
        # A request ends with its client's connection.
        self._runner = web.AppRunner(
            self._app(),
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=_SHUTDOWN_S,
        )
        await self._runner.setup()
        folder, port = self._settings.fleets_tls_dir, self._settings.fleets_port
        context = None if folder is None else serving_context(folder)
        try:
            await web.TCPSite(self._runner, port=port, ssl_context=context).start()
        except OSError as error:
            raise OSError(f"{error}; set RLFLEET_FLEETS_PORT to a free port") from error

    async def close(self) -> None:
        """Stop; a waiting client sees a broken connection and may send its request again."""
        if self._runner is not None:
            await self._runner.cleanup()
        await self._page.close()

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._guarded], client_max_size=_BODY_LIMIT)
        base = "/fleets/{namespace}/{name}"
        handlers: dict[str, Handler] = {
            "workers": self._workers,
            "state": self._state,
            "update_weights": self._update,
            "pause": partial(self._waited, self._pauses.pause),
            "resume": partial(self._waited, self._pauses.resume),
            "flush_cache": partial(self._waited, self._pauses.flush),
        }
        for name, offer in OFFERS.items():
            path = f"{base}/v1/rl/{name}"
            app.router.add_route(offer.method, path, handlers[name], name=name)
        for name, offer in CLASSIC.items():
            handler = partial(self._classic, name)
            app.router.add_route(offer.method, f"{base}/{name}", handler, name=label_of(name))
        self._page.add_routes(app.router, base)
        app.router.add_route("*", base + "/{rest:.*}", _nowhere, name="none")
        return app

    # --- handlers -------------------------------------------------------------------------------

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check the token, and turn every exception into a JSON error."""
        try:
            _demand_no_browser(request)
            authorization = request.headers.get("Authorization")
            request[_TOKEN] = await self._demand(_key(request), authorization)
            response = await handler(request)
        except Exception as error:  # noqa: BLE001 - the boundary: each becomes an answer
            response = _refused(error, request)
        name = request.match_info.route.name or "none"
        metrics.TRAINER_REQUESTS.labels(route=name, code=str(response.status)).inc()
        return response

    async def _workers(self, request: web.Request) -> web.Response:
        fleet, workers = await self._view.observed(_key(request), request[_TOKEN])
        port = self._settings.admin_port
        return _json(200, replies.discovery(fleet, workers, port), exclude_none=True)

    async def _state(self, request: web.Request) -> web.Response:
        fleet, workers = await self._view.observed(_key(request), request[_TOKEN])
        return _json(200, replies.state(fleet, workers, fleet.pause_at(time.time())))

    async def _waited(self, act: _Act, request: web.Request) -> web.Response:
        asked = asked_from(await request.read(), request.query)
        status, reply = await act(_key(request), request[_TOKEN], asked)
        what = {"route": request.match_info.route.name, "code": status}
        _log.info("Answered a trainer's request", extra={**about(_key(request)), **what})
        return _json(status, reply)

    async def _update(self, request: web.Request) -> web.Response:
        body = await request.read()
        asked = await self._updates.asked(_key(request), lambda: update_from(body))
        if asked.is_nothing:
            fleet, workers = await self._view.observed(_key(request), request[_TOKEN])
            return _json(*replies.nothing_loaded(fleet, workers))
        return _json(*await self._updates.update(_key(request), request[_TOKEN], asked))

    async def _classic(self, name: str, request: web.Request) -> web.Response:
        said = await self._classics.answer(name, _key(request), request[_TOKEN], request)
        return _answer(*said, request.path)

    async def _demand(self, key: FleetKey, authorization: str | None) -> str:
        return await self._access.demand(self._fleets.known(key), authorization)

    async def _token(self, raw: Json) -> AdminToken:
        return await apply.known_token(self._fleets.kube, named(raw))


def _key(request: web.Request) -> FleetKey:
    found = request.match_info
    return found.get("namespace", ""), found.get("name", "")


def _demand_no_browser(request: web.Request) -> None:
    """Raise Refusal for a change that a browser sends.

    A browser keeps the token that it was given for the page, and would send it with a request
    that any other site makes it send. The page itself changes nothing.
    """
    if request.method != "GET" and {"Origin", "Sec-Fetch-Site"} & set(request.headers):
        raise Refusal(Fault.FROM_BROWSER, "browsers may only read; use kubectl rlf or curl")


async def _nowhere(request: web.Request) -> web.StreamResponse:
    offers = ", ".join(OFFERS)
    what = f"no route {request.method} {request.path:.200}"
    raise Refusal(Fault.NOT_FOUND, f"{what}; use v1/rl/ with one of {offers}")


# --- replies --------------------------------------------------------------------------------------


def _json(status: int, reply: BaseModel, *, exclude_none: bool = False) -> web.Response:
    """Reply with a model; an error also has ``error`` for clients of other APIs."""
    return _answer(status, reply.model_dump(mode="json", exclude_none=exclude_none))


def _answer(status: int, fields: Mapping[str, Any], path: str = "") -> web.Response:
    if status < _ERROR:
        return web.json_response(fields, status=status)
    code, message = fields["code"], fields["message"]
    # prime-rl reads ``data`` of the list of models before it checks the status.
    listed: dict[str, Any] = {"data": []} if path.endswith("/v1/models") else {}
    body = {**fields, "error": error_of(code, message, status), **listed}
    return web.json_response(body, status=status, reason=phrase_of(code, message))


def _refused(error: Exception, request: web.Request) -> web.Response:
    """Return the reply to a request that raised an error."""
    path = request.path
    refusal = error if isinstance(error, Refusal) else _refusal(error, request)
    fault = refusal.fault
    said = Rejection(code=fault, message=refusal.message, retryable=fault.retryable)
    status = fault.status if "/v1/rl/" in path else fault.trainer_status
    response = _answer(status, said.model_dump(mode="json"), path)
    if fault is Fault.UNAUTHORIZED:
        is_page = (request.match_info.route.name or "").startswith(PREFIX)
        # A browser asks its user for the password: the token.
        response.headers["WWW-Authenticate"] = _BASIC if is_page else "Bearer"
    return response


def _refusal(error: Exception, request: web.Request) -> Refusal:
    match error:
        case Missing():
            return Refusal(Fault.NOT_FOUND, str(error))
        case OperatorError():
            return Refusal(Fault.UNAVAILABLE, str(error))
        case web.HTTPClientError():
            return Refusal(Fault.INVALID_REQUEST, f"{error.status} {error.reason}")
        case _:
            what = {**about(_key(request)), "route": request.match_info.route.name}
            _log.error("Failed to answer a trainer: operator defect", exc_info=error, extra=what)
            said = f"operator defect ({type(error).__name__}); report it with the operator's log"
            return Refusal(Fault.INTERNAL, said)
