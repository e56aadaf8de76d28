"""Weights that are sent into vLLM's own transfer engine (NCCL and its kin), by vLLM's routes.

The part that carries them is /update_weights with `update_info` (weights.py).
"""

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from rlfleet_sidecar.dialects.replies import DialectRoute, TrainerOfRequest, shown, told
from rlfleet_sidecar.http.request_body import Parsed

SENT_BODY_BYTES = 64 * 1024 * 1024
"""The names, types and shapes of a large model's tensors; its bytes go another way."""
DRAFT = "weights of a draft model are not served: send those of the model itself"
FORM = "is_checkpoint_format: only tensors as a checkpoint has them are taken"
router = APIRouter(route_class=DialectRoute)


class _Body(BaseModel):
    """Clients of many releases send it: what is not known is left unread."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class InitBody(_Body):
    """What vLLM's backend needs to meet its trainer."""

    init_info: dict[str, Any]


class StartBody(_Body):
    """In which form the tensors come."""

    is_checkpoint_format: bool = True


class FinishBody(_Body):
    """What the trainer calls these weights."""

    weight_version: str | None = None


@router.post("/init_weight_transfer_engine")
async def init_weight_transfer_engine(
    worker: TrainerOfRequest, body: Annotated[InitBody, Depends(Parsed(InitBody))]
) -> Response:
    """Form the group with the trainer; the worker serves on."""
    await worker.sender.init(body.init_info)
    return told(message="Weight transfer initialized")


@router.post("/shutdown_weight_transfer_engine")
async def shutdown_weight_transfer_engine(worker: TrainerOfRequest) -> Response:
    """Leave the group with the trainer; the worker serves on."""
    await worker.sender.shutdown()
    return told(message="Weight transfer shut down")


@router.post("/start_weight_update")
async def start_weight_update(
    worker: TrainerOfRequest, body: Annotated[StartBody, Depends(Parsed(StartBody, empty=b"{}"))]
) -> Response:
    """Begin an update of a paused worker that is in a group."""
    if not body.is_checkpoint_format:
        worker.refuse_update(FORM)
    await worker.sender.start()
    return told(message="Weight update started")


@router.post("/finish_weight_update")
async def finish_weight_update(
    worker: TrainerOfRequest, body: Annotated[FinishBody, Depends(Parsed(FinishBody, empty=b"{}"))]
) -> Response:
    """End the update and prove that the engine answers; a resume opens it."""
    report = await worker.sender.finish(body.weight_version)
    return told(message="Weight update finished", **shown(report))


@router.post("/start_draft_weight_update")
async def start_draft_weight_update(worker: TrainerOfRequest) -> Response:
    """Reject: there is no draft model to prove."""
    worker.refuse_update(DRAFT)


@router.post("/init_broadcaster")
async def init_broadcaster(worker: TrainerOfRequest) -> Response:
    """Reject: only prime-rl's own engine can receive."""
    worker.refuse_broadcast()
