"""Replies to trainers: compact JSON with its length, and all errors in one form.

Some clients read the HTTP status and some ``status`` in the body, so an error has both.
"""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.responses import JSONResponse, Response

from rlfleet_contract.worker.loaded_lora import AdapterReport
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import WorkerReport
from rlfleet_sidecar.dialects.caller import CALLER, caller_of
from rlfleet_sidecar.dialects.pauses import IS_GONE
from rlfleet_sidecar.dialects.session import TrainerSession
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.http import problems
from rlfleet_sidecar.http.request_body import complaint
from rlfleet_sidecar.staging.prepare_job import SupersededError
from rlfleet_sidecar.state.sent_weights import label_of

_CONFLICT = 409
Fields = dict[str, Any]


class DialectRoute(APIRoute):
    """A route that returns errors in the trainers' form."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the route's handler, dependencies included, with this form of errors."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            IS_GONE.set(request.is_disconnected)
            CALLER.set(caller_of(request))
            try:
                return await handler(request)
            except SidecarError as error:
                return refusal(error)
            except RequestValidationError as error:
                return refusal(SidecarError(Code.INVALID_REQUEST, complaint(error.errors())))

        return handle


def reply(**fields: object) -> Response:
    """Return these fields as JSON."""
    return JSONResponse(fields)


def refusal(error: SidecarError, status: int | None = None) -> Response:
    """Return an error in the trainers' form."""
    if isinstance(error, SupersededError):
        # A retry would replace the newer call.
        status = _CONFLICT
    path = CALLER.get().call.partition(" ")[2]
    code = status or error.code.trainer_status
    return problems.response_to(path, error.problem(), code, status="error")


def shown(report: WorkerReport | AdapterReport) -> Fields:
    """Return the fields of the proved version, or of the loaded adapter."""
    if isinstance(report, AdapterReport):
        return {"version": report.version, "digest": report.digest}
    proof = report.proof
    layers = [] if proof is None else [str(layer) for layer in proof.verified_by]
    return {"weight_version": label_of(report.proved), "verified_by": layers}


async def trainer_of(request: Request) -> TrainerSession:
    """Return the application's session for trainers."""
    trainer: TrainerSession = request.app.state.trainer
    return trainer


TrainerOfRequest = Annotated[TrainerSession, Depends(trainer_of)]
