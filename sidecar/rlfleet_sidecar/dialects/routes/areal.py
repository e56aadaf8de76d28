"""AReaL's routes of its own vLLM server, for weights that it writes to a disk.

It aborts all requests, saves, calls for the load and continues; requests in between wait. Its
adapters come by vLLM's route (lora.py).
"""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from rlfleet_contract.worker.commands import PauseMode
from rlfleet_sidecar.dialects.replies import DialectRoute, TrainerOfRequest, reply, shown
from rlfleet_sidecar.http.request_body import Parsed, TrainerBody

_BETWEEN_GPUS = "not supported: set actor.weight_update_mode=disk, and send /areal_update_weights"
router = APIRouter(route_class=DialectRoute)


class ModelBody(TrainerBody):
    """The directory of a version."""

    model_path: str


@router.post("/areal_pause_generation")
async def pause(worker: TrainerOfRequest) -> Response:
    """Abort all requests and pause; later ones wait."""
    await worker.pause(PauseMode.ABORT, clear_cache=True)
    return _done("Generation paused and all requests aborted")


@router.post("/areal_continue_generation")
async def resume(worker: TrainerOfRequest) -> Response:
    """Open the gate over what is proved; rejected after a failed update."""
    await worker.resume()
    return _done("Generation continued")


@router.post("/areal_update_weights")
async def update(
    worker: TrainerOfRequest, body: Annotated[ModelBody, Depends(Parsed(ModelBody))]
) -> Response:
    """Load a directory; AReaL's pause around it stays until it continues."""
    report = await worker.update(body.model_path)
    return _done("loaded and proved", **shown(report))


@router.post("/areal_init_weights_update_group")
async def between_gpus(worker: TrainerOfRequest) -> Response:
    """Reject: only AReaL's own engine can receive. It is the first call of a mode for GPUs."""
    worker.refuse_update(_BETWEEN_GPUS)


def _done(message: str, **fields: object) -> Response:
    return reply(success=True, message=message, **fields)
