"""vLLM's routes for transfers into its transfer engine (NCCL and others).

The call with the weights is /update_weights with `update_info` (weights.py).
"""

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.responses import Response

from rlfleet_sidecar.dialects.replies import DialectRoute, TrainerOfRequest, reply, shown
from rlfleet_sidecar.http.request_body import Parsed, TrainerBody

SENT_BODY_BYTES = 64 * 1024 * 1024
"""Names, types and shapes of a large model's tensors; the bytes do not come by HTTP."""
DRAFT = "weights of a draft model are not supported; send the model's own"
FORM = "is_checkpoint_format: must be true; send tensors in the form of a checkpoint"
router = APIRouter(route_class=DialectRoute)


class InitBody(TrainerBody):
    """The address of the trainer's group, for vLLM's backend."""

    init_info: dict[str, Any]


class StartBody(TrainerBody):
    """The form of the tensors."""

    is_checkpoint_format: bool = True


class FinishBody(TrainerBody):
    """The trainer's name for these weights."""

    weight_version: str | None = None


@router.post("/init_weight_transfer_engine")
async def init_weight_transfer_engine(
    worker: TrainerOfRequest, body: Annotated[InitBody, Depends(Parsed(InitBody))]
) -> Response:
    """Form the group with the trainer; the worker keeps serving."""
    await worker.sender.init(body.init_info)
    return reply(message="Weight transfer initialized")


@router.post("/shutdown_weight_transfer_engine")
async def shutdown_weight_transfer_engine(worker: TrainerOfRequest) -> Response:
    """Leave the group with the trainer; the worker keeps serving."""
    await worker.sender.shutdown()
    return reply(message="Weight transfer shut down")


@router.post("/start_weight_update")
async def start_weight_update(
    worker: TrainerOfRequest, body: Annotated[StartBody, Depends(Parsed(StartBody, empty=b"{}"))]
) -> Response:
    """Begin an update of a paused worker that is in a group."""
    if not body.is_checkpoint_format:
        worker.refuse_update(FORM)
    await worker.sender.start()
    return reply(message="Weight update started")


@router.post("/finish_weight_update")
async def finish_weight_update(
    worker: TrainerOfRequest, body: Annotated[FinishBody, Depends(Parsed(FinishBody, empty=b"{}"))]
) -> Response:
    """End the update and prove that the engine answers; a resume opens it."""
    report = await worker.sender.finish(body.weight_version)
    return reply(message="Weight update finished", **shown(report))


@router.post("/start_draft_weight_update")
async def start_draft_weight_update(worker: TrainerOfRequest) -> Response:
    """Reject: there is no draft model to prove."""
    worker.refuse_update(DRAFT)


@router.post("/init_broadcaster")
async def init_broadcaster(worker: TrainerOfRequest) -> Response:
    """Reject: only prime-rl's own engine can receive."""
    worker.refuse_broadcast()
