"""Composes the sidecar: routes behind credentials, error handlers, the watchdog.

It must stay true that the application checks credentials, not a route: so new and unknown
routes need them too. Only the health routes do not: the kubelet has no credentials, and some
trainers send none there. Then requests are counted per route, before a body is read.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.responses import JSONResponse, Response

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.cache.store import VersionStore
from rlfleet_sidecar.change.executor import Executor
from rlfleet_sidecar.change.fencing import Fencing
from rlfleet_sidecar.change.lora_commands import LoRACommands
from rlfleet_sidecar.change.steps import Steps
from rlfleet_sidecar.change.transfer import Transfer
from rlfleet_sidecar.change.ttl import ChangeTTL
from rlfleet_sidecar.change.watchdog import Watchdog
from rlfleet_sidecar.checkpoints.check import Checkpoints
from rlfleet_sidecar.dialects.lora import TrainerLoRA
from rlfleet_sidecar.dialects.routes import (
    areal,
    dynamo,
    engine_info,
    pause,
    weight_transfer,
    weights,
)
from rlfleet_sidecar.dialects.routes import lora as adapter_dialects
from rlfleet_sidecar.dialects.session import TrainerSession
from rlfleet_sidecar.errors import SidecarError, internal
from rlfleet_sidecar.http import pieces
from rlfleet_sidecar.http.admin import executor_of, router
from rlfleet_sidecar.http.auth import FleetToken
from rlfleet_sidecar.http.problems import response_to
from rlfleet_sidecar.http.request_limit import RequestLimit
from rlfleet_sidecar.lora.cache import LoRACache
from rlfleet_sidecar.lora.registry import Registry
from rlfleet_sidecar.lora.serving import LoRAServing
from rlfleet_sidecar.newest.watch import NewestWatch
from rlfleet_sidecar.retention.keeper import Keeper
from rlfleet_sidecar.retention.looks import Looks
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.state.journal import Journal
from rlfleet_sidecar.vllm_client import EngineClient

_KNOWN = (
    "load weights by POST /update_weights with weight_dir,"
    f" send requests to the engine, port {paths.ENGINE_PORT}"
)
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]
_log = logging.getLogger(__name__)


async def _live(_request: Request) -> Response:
    """Return 200 while the sidecar answers."""
    return JSONResponse({"live": True})


async def _ready(request: Request) -> Response:
    """Return 200 if this worker may take traffic."""
    serving = (await executor_of(request)).serving
    return JSONResponse({"ready": serving}, 200 if serving else 503)


OPEN: dict[str, Callable[[Request], Awaitable[Response]]] = {
    paths.LIVE_PATH: _live,
    paths.READY_PATH: _ready,
    "/health": engine_info.health,
    paths.LIVENESS_PATH: engine_info.liveness,
}
"""Routes without credentials."""
ROUTERS = (
    router,
    pieces.router,
    pause.router,
    weights.router,
    weight_transfer.router,
    adapter_dialects.router,
    engine_info.router,
    areal.router,
    dynamo.router,
)


def create_app(
    settings: SidecarSettings, transport: httpx.AsyncBaseTransport | None = None
) -> FastAPI:
    """Return the application, which watches the engine between start-up and shutdown."""
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    journal, engine = Journal(settings.state_dir), EngineClient(settings.engine_url, transport)
    checkpoints = Checkpoints(settings, lambda: journal.record.needs)
    copies = LoRACache(settings, checkpoints)
    store = VersionStore(settings, checkpoints, copies.nbytes)
    adapters = LoRAServing(settings.model_name, engine, store, copies, Registry(settings.state_dir))
    steps = Steps(settings, engine, store, journal, adapters)
    leadership, credentials = ChangeTTL(journal), FleetToken(settings.token_file)
    looks = Looks(NewestWatch.of(settings), Keeper.of(settings))
    executor = Executor(
        steps, store, journal, leadership, settings.pod_uid, looks.found, credentials.revision
    )
    lora = LoRACommands(settings.model_name, executor, adapters, journal)
    fencing = Fencing(settings.fleet_uid, settings.pod_uid, journal, executor, lora, leadership)
    transfer = Transfer(settings, engine, steps, journal, executor, leadership)
    library = TrainerLoRA(settings, journal, fencing, adapters)
    trainer = TrainerSession(settings, engine, journal, fencing, transfer, library)
    watch = Watchdog(settings, steps, journal, executor, leadership)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        ends = (executor.preparation.stop, trainer.landed, lora.landed, executor.flight.landed)
        async with engine, _watched(watch, looks.run(executor.in_use), *ends, fencing.landed):
            yield

    app = FastAPI(
        lifespan=lifespan,
        routes=list(_TABLE.routes),
        dependencies=[Depends(_authorize)],
        openapi_url=None,
        redirect_slashes=False,
        exception_handlers=HANDLERS,
    )
    app.state.credentials, app.state.limit = credentials, RequestLimit()
    app.state.executor, app.state.fencing, app.state.looks = executor, fencing, looks
    app.state.trainer, app.state.library, app.state.shelf = trainer, library, store.shelf
    return app


@asynccontextmanager
async def _watched(
    watch: Watchdog, at_store: Coroutine[Any, Any, None], *ends: Callable[[], Awaitable[None]]
) -> AsyncIterator[None]:
    """Run the watches; at the end wait, in order, for the work under way."""
    looking = asyncio.create_task(watch.run())
    storing = asyncio.create_task(at_store)
    keeping = asyncio.create_task(watch.keep())
    try:
        yield
    finally:
        await _cancelled(looking)
        await _cancelled(storing)
        for end in ends:
            await end()
        # Until the last command has ended, its TTL must be renewed.
        await _cancelled(keeping)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def _authorize(request: Request) -> None:
    credentials: FleetToken = request.app.state.credentials
    credentials.demand(request.headers.get("authorization"))


async def _admit(request: Request) -> AsyncIterator[None]:
    route = request.scope.get("route")
    kind = getattr(route, "path", request.url.path)
    limit: RequestLimit = request.app.state.limit
    with limit.place(request.method, kind):
        yield


async def _unknown(path: str) -> Response:
    why = f"unknown route /{path:.200}; {_KNOWN}"
    return response_to(path, SidecarError(Code.INVALID_REQUEST, why).problem(), 404)


async def _problem(request: Request, error: Exception) -> Response:
    if not isinstance(error, SidecarError):
        raise TypeError(f"got {type(error).__name__}, expected SidecarError") from error
    return response_to(request.url.path, error.problem(), error.code.status)


async def _invalid(request: Request, error: Exception) -> Response:
    return await _problem(request, SidecarError(Code.INVALID_REQUEST, str(error)))


async def _internal(request: Request, error: Exception) -> Response:
    _log.error("Request failed by an internal error", exc_info=error)
    return await _problem(request, internal(error))


def _table() -> APIRouter:
    """Return all routes; built once a process, because that is slow."""
    table = APIRouter(dependencies=[Depends(_authorize), Depends(_admit)])
    for path, handler in OPEN.items():
        table.add_route(path, handler, methods=["GET"])
    for routes in ROUTERS:
        table.include_router(routes)
    table.add_api_route("/{path:path}", _unknown, methods=_METHODS)
    return table


_TABLE = _table()
_Handler = Callable[[Request, Any], Coroutine[Any, Any, Response]]
HANDLERS: dict[int | type[Exception], _Handler] = {
    SidecarError: _problem,
    RequestValidationError: _invalid,
    Exception: _internal,
}
