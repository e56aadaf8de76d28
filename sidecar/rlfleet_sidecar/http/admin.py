"""The admin routes: parse, call, return a contract model. Nothing is decided here."""

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request
from starlette.responses import Response

from rlfleet_contract import paths
from rlfleet_contract.fence import MAX_EPOCH, Place
from rlfleet_contract.models import (
    FlushRequest,
    PauseRequest,
    PrepareRequest,
    ReloadRequest,
    ResumeRequest,
    UpdateRequest,
    VerifyRequest,
    WorkerReport,
)
from rlfleet_contract.problems import Code
from rlfleet_contract.target import Target
from rlfleet_sidecar.change.executor import Executor
from rlfleet_sidecar.change.fencing import Fencing
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.http.parts import part_of
from rlfleet_sidecar.http.request_body import Parsed
from rlfleet_sidecar.state.fence_rules import StoredAnswer

router = APIRouter()


async def executor_of(request: Request) -> Executor:
    """Find the worker that this application is about."""
    return part_of(request, Executor)


async def fencing_of(request: Request) -> Fencing:
    """Find what stands before that worker."""
    return part_of(request, Fencing)


FencingOfRequest = Annotated[Fencing, Depends(fencing_of)]


def place_of(text: str) -> Place:
    """Read up to where commands are over. Raises InvalidRequest."""
    try:
        return Place.parse(text)
    except ValueError as error:
        raise SidecarError(Code.INVALID_REQUEST, f"{paths.OVER_HEADER}: {error}") from error


def told(answer: StoredAnswer) -> Response:
    """Give the answer that a command got."""
    return Response(answer.body, answer.status, media_type="application/json")


@router.get(paths.STATE_PATH)
async def state(
    worker: FencingOfRequest,
    executor: Annotated[Executor, Depends(executor_of)],
    epoch: Annotated[int | None, Header(alias=paths.EPOCH_HEADER, ge=0, le=MAX_EPOCH)] = None,
    target: Annotated[str | None, Header(alias=paths.TARGET_HEADER, max_length=128)] = None,
    owner: Annotated[str, Header(alias=paths.OWNER_HEADER, max_length=256)] = "",
    unasked: Annotated[int | None, Header(alias=paths.UNASKED_HEADER, ge=0, le=MAX_EPOCH)] = None,
    over: Annotated[str | None, Header(alias=paths.OVER_HEADER)] = None,
) -> WorkerReport:
    """Tell all that the worker knows of itself; with an epoch it is a sign of its driver.

    With ``x-rlfleet-over``, EPOCH.SEQUENCE, that driver's commands are over up to there.
    """
    if over is not None:
        worker.end(place_of(over))
    if epoch is not None:
        worker.heartbeat(epoch, None if target is None else Target(target, owner))
    if unasked is not None:
        worker.unasked(unasked)
    return worker.counting(executor.report())


@router.post(paths.PREPARE_PATH)
async def prepare(
    worker: FencingOfRequest, request: Annotated[PrepareRequest, Depends(Parsed(PrepareRequest))]
) -> Response:
    """Find a version and check it; the engine goes on."""
    return told(await worker.carry_out(request))


@router.post(paths.PAUSE_PATH)
async def pause(
    worker: FencingOfRequest, request: Annotated[PauseRequest, Depends(Parsed(PauseRequest))]
) -> Response:
    """Close the gate and pause the engine."""
    return told(await worker.carry_out(request))


@router.post(paths.FLUSH_PATH)
async def flush(
    worker: FencingOfRequest, request: Annotated[FlushRequest, Depends(Parsed(FlushRequest))]
) -> Response:
    """Reset the paused engine's caches."""
    return told(await worker.carry_out(request))


@router.post(paths.RELOAD_PATH)
async def reload(
    worker: FencingOfRequest, request: Annotated[ReloadRequest, Depends(Parsed(ReloadRequest))]
) -> Response:
    """Install the prepared version in place."""
    return told(await worker.carry_out(request))


@router.post(paths.VERIFY_PATH)
async def verify(
    worker: FencingOfRequest, request: Annotated[VerifyRequest, Depends(Parsed(VerifyRequest))]
) -> Response:
    """Prove behind the closed gate what the engine holds."""
    return told(await worker.carry_out(request))


@router.post(paths.RESUME_PATH)
async def resume(
    worker: FencingOfRequest, request: Annotated[ResumeRequest, Depends(Parsed(ResumeRequest))]
) -> Response:
    """Open the gate over what is proved."""
    return told(await worker.carry_out(request))


@router.post(paths.UPDATE_WEIGHTS_PATH)
async def update_weights(
    worker: FencingOfRequest, request: Annotated[UpdateRequest, Depends(Parsed(UpdateRequest))]
) -> Response:
    """Take the whole way to a prepared version."""
    return told(await worker.carry_out(request))
