"""The admin routes: parse, call, return a contract model, without decisions."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request
from starlette.responses import Response, StreamingResponse

from rlfleet_contract import paths
from rlfleet_contract.worker.commands import WEIGHTS_COMMANDS, Command
from rlfleet_contract.worker.fence import MAX_EPOCH, Place
from rlfleet_contract.worker.loaded_lora import AdapterList
from rlfleet_contract.worker.lora import LoadAdapterRequest, UnloadAdapterRequest
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Target, WorkerReport
from rlfleet_contract.worker.retention import Needs
from rlfleet_sidecar.change.executor import Executor
from rlfleet_sidecar.change.fencing import Fencing
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.http.auth import FleetToken
from rlfleet_sidecar.http.request_body import Parsed
from rlfleet_sidecar.http.watch import lines
from rlfleet_sidecar.newest.watch import NewestWatch
from rlfleet_sidecar.retention.keeper import Keeper
from rlfleet_sidecar.retention.looks import Looks
from rlfleet_sidecar.state.fence_rules import StoredAnswer

router = APIRouter()


async def executor_of(request: Request) -> Executor:
    """Return the application's executor."""
    executor: Executor = request.app.state.executor
    return executor


async def fencing_of(request: Request) -> Fencing:
    """Return the application's fencing, which checks commands first."""
    fencing: Fencing = request.app.state.fencing
    return fencing


async def watch_of(request: Request) -> NewestWatch:
    """Return the application's look for the newest version."""
    looks: Looks = request.app.state.looks
    return looks.newest


async def keeper_of(request: Request) -> Keeper:
    """Return the application's look for versions that are not needed."""
    looks: Looks = request.app.state.looks
    return looks.keeper


FencingOfRequest = Annotated[Fencing, Depends(fencing_of)]


def place_of(text: str) -> Place:
    """Parse the place up to which commands are cancelled. Raises InvalidRequest."""
    try:
        return Place.parse(text)
    except ValueError as error:
        raise SidecarError(Code.INVALID_REQUEST, f"{paths.OVER_HEADER}: {error}") from error


def response_of(answer: StoredAnswer) -> Response:
    """Return a command's stored answer as a response."""
    return Response(answer.body, answer.status, media_type="application/json")


@router.get(paths.STATE_PATH)
async def state(
    worker: FencingOfRequest,
    executor: Annotated[Executor, Depends(executor_of)],
    watch: Annotated[NewestWatch, Depends(watch_of)],
    keeper: Annotated[Keeper, Depends(keeper_of)],
    epoch: Annotated[int | None, Header(alias=paths.EPOCH_HEADER, ge=0, le=MAX_EPOCH)] = None,
    target: Annotated[str | None, Header(alias=paths.TARGET_HEADER, max_length=128)] = None,
    owner: Annotated[str, Header(alias=paths.OWNER_HEADER, max_length=256)] = "",
    unasked: Annotated[int | None, Header(alias=paths.UNASKED_HEADER, ge=0, le=MAX_EPOCH)] = None,
    over: Annotated[str | None, Header(alias=paths.OVER_HEADER)] = None,
    follow: Annotated[str | None, Header(alias=paths.FOLLOW_HEADER)] = None,
    taken_up: Annotated[str | None, Header(alias=paths.TAKEN_UP_HEADER, max_length=128)] = None,
    needs: Annotated[str | None, Header(alias=paths.NEEDS_HEADER)] = None,
) -> WorkerReport:
    """Return the worker's report; with an epoch it is its driver's heartbeat.

    With ``x-rlfleet-over``, EPOCH.SEQUENCE, that driver's commands are over up to there; with
    ``x-rlfleet-follow`` the worker looks for the newest version; with ``x-rlfleet-taken-up`` too
    it accepts what a trainer offers beyond that version. With an epoch and ``x-rlfleet-needs`` it
    looks for versions that are not needed.
    """
    if follow is not None:
        watch.ask(taken_up)
    if over is not None:
        worker.end(place_of(over))
    if epoch is not None:
        counts = worker.heartbeat(epoch, None if target is None else Target(target, owner))
        if counts and needs is not None and (asked := Needs.of(needs)) is not None:
            keeper.ask(asked)
    if unasked is not None:
        worker.unasked(unasked)
    return worker.counting(executor.report())


@router.get(paths.WATCH_PATH)
async def watch(
    request: Request,
    worker: FencingOfRequest,
    executor: Annotated[Executor, Depends(executor_of)],
) -> Response:
    """Return a line of JSON with the worker's report whenever it has news, until it is closed."""
    credentials: FleetToken = request.app.state.credentials

    def report() -> WorkerReport:
        return worker.counting(executor.report())

    def is_admitted() -> bool:
        return credentials.admits(request.headers.get("authorization"))

    found = lines(report, executor.news, is_admitted)
    return StreamingResponse(found, media_type="application/x-ndjson")


@router.get(paths.ADAPTERS_PATH)
async def adapters(executor: Annotated[Executor, Depends(executor_of)]) -> AdapterList:
    """Return every adapter that is served or wanted."""
    return AdapterList(adapters=executor.report().adapters)


def _carries_out(kind: type[Command]) -> Callable[..., Awaitable[Response]]:
    async def carry_out(
        worker: FencingOfRequest, request: Annotated[Any, Depends(Parsed(kind))]
    ) -> Response:
        return response_of(await worker.carry_out(request))

    carry_out.__doc__ = kind.__doc__
    return carry_out


COMMANDS: tuple[type[Command], ...] = (
    *WEIGHTS_COMMANDS,
    LoadAdapterRequest,
    UnloadAdapterRequest,
)
for command in COMMANDS:
    router.add_api_route(command.PATH, _carries_out(command), methods=[command.METHOD])
