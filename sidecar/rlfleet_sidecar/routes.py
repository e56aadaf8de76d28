"""The admin routes: parse, call, return a contract model. Nothing is decided here.

Bodies are read after the credentials were checked, by a dependency of our own: FastAPI
would read and judge them before.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, Header, Request
from pydantic import ValidationError
from starlette.responses import Response

from rlfleet_contract import api
from rlfleet_contract.models import (
    Command,
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
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.fence import Answer
from rlfleet_sidecar.fencing import Fencing
from rlfleet_sidecar.perform import Performer

_MAX_BODY_BYTES = 1024 * 1024
ModelT = TypeVar("ModelT", bound=Command)
router = APIRouter()


async def performer_of(request: Request) -> Performer:
    """Find the worker that this application is about."""
    performer = request.app.state.performer
    if not isinstance(performer, Performer):
        raise TypeError("the application has no performer")
    return performer


async def fencing_of(request: Request) -> Fencing:
    """Find what stands before that worker."""
    fencing = request.app.state.fencing
    if not isinstance(fencing, Fencing):
        raise TypeError("the application has no fencing")
    return fencing


Worker = Annotated[Fencing, Depends(fencing_of)]


def _parsed(model: type[ModelT]) -> Callable[[Request], Awaitable[ModelT]]:
    async def parse(request: Request) -> ModelT:
        try:
            return model.model_validate_json(await _body(request))
        except ValidationError as error:
            raise SidecarError(Code.INVALID_REQUEST, _complaint(error)) from error

    return parse


async def _body(request: Request) -> bytes:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _MAX_BODY_BYTES:
            raise SidecarError(
                Code.INVALID_REQUEST, f"the body has more than {_MAX_BODY_BYTES} bytes"
            )
    return body


def _complaint(error: ValidationError) -> str:
    told = [
        f"{'.'.join(str(part) for part in one['loc']) or 'body'}: {one['msg']}"
        for one in error.errors(include_url=False, include_input=False)
    ]
    return "; ".join(told[:5])


def _told(answer: Answer) -> Response:
    return Response(answer.body, answer.status, media_type="application/json")


@router.get(api.STATE_PATH)
async def state(
    worker: Worker,
    performer: Annotated[Performer, Depends(performer_of)],
    epoch: Annotated[int | None, Header(alias=api.EPOCH_HEADER, ge=0)] = None,
) -> WorkerReport:
    """Tell all that the worker knows of itself; with an epoch it is a sign of its driver."""
    if epoch is not None:
        worker.heartbeat(epoch)
    return performer.report()


@router.post(api.PREPARE_PATH)
async def prepare(
    worker: Worker, request: Annotated[PrepareRequest, Depends(_parsed(PrepareRequest))]
) -> Response:
    """Find a version and check it; the engine goes on."""
    return _told(await worker.carry_out(request))


@router.post(api.PAUSE_PATH)
async def pause(
    worker: Worker, request: Annotated[PauseRequest, Depends(_parsed(PauseRequest))]
) -> Response:
    """Close the gate and pause the engine."""
    return _told(await worker.carry_out(request))


@router.post(api.FLUSH_PATH)
async def flush(
    worker: Worker, request: Annotated[FlushRequest, Depends(_parsed(FlushRequest))]
) -> Response:
    """Reset the paused engine's caches."""
    return _told(await worker.carry_out(request))


@router.post(api.RELOAD_PATH)
async def reload(
    worker: Worker, request: Annotated[ReloadRequest, Depends(_parsed(ReloadRequest))]
) -> Response:
    """Install the prepared version in place."""
    return _told(await worker.carry_out(request))


@router.post(api.VERIFY_PATH)
async def verify(
    worker: Worker, request: Annotated[VerifyRequest, Depends(_parsed(VerifyRequest))]
) -> Response:
    """Prove behind the closed gate what the engine holds."""
    return _told(await worker.carry_out(request))


@router.post(api.RESUME_PATH)
async def resume(
    worker: Worker, request: Annotated[ResumeRequest, Depends(_parsed(ResumeRequest))]
) -> Response:
    """Open the gate over what is proved."""
    return _told(await worker.carry_out(request))


@router.post(api.UPDATE_WEIGHTS_PATH)
async def update_weights(
    worker: Worker, request: Annotated[UpdateRequest, Depends(_parsed(UpdateRequest))]
) -> Response:
    """Take the whole way to a prepared version."""
    return _told(await worker.carry_out(request))
