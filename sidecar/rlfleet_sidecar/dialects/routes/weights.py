"""Weights from a directory or by transfer, in the form of prime-rl and of vLLM's own clients.

weight_transfer.py has the other routes of a transfer.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import AliasChoices, Field
from starlette.responses import Response

from rlfleet_sidecar.change.transfer import Info
from rlfleet_sidecar.dialects import rules
from rlfleet_sidecar.dialects.replies import DialectRoute, TrainerOfRequest, reply, shown
from rlfleet_sidecar.dialects.routes.weight_transfer import FORM, SENT_BODY_BYTES
from rlfleet_sidecar.dialects.session import TrainerSession
from rlfleet_sidecar.http.request_body import Parsed, TrainerBody
from rlfleet_sidecar.state.sent_weights import label_of

_UPDATE_RPC = "update_weights_from_path"
router = APIRouter(route_class=DialectRoute)


class UpdateBody(TrainerBody):
    """Exactly one of the two; a directory may be null."""

    weight_dir: str | None = None
    update_info: Info | None = None


class VersionBody(TrainerBody):
    """A version's name."""

    new_version: str


class RpcBody(TrainerBody):
    """A method of vLLM's workers."""

    method: str
    args: list[Any] = Field(default_factory=list)
    named: dict[str, Any] = Field(default_factory=dict, validation_alias=AliasChoices("kwargs"))


@router.post("/update_weights")
async def update_weights(
    worker: TrainerOfRequest,
    body: Annotated[UpdateBody, Depends(Parsed(UpdateBody, limit=SENT_BODY_BYTES))],
) -> Response:
    """Load a directory; null loads nothing, `update_info` is a part of sent weights."""
    if len(body.model_fields_set) != 1:
        worker.refuse_update("body: send exactly one of weight_dir and update_info")
    if "update_info" in body.model_fields_set:
        if body.update_info is None:
            worker.refuse_update("update_info: must not be null")
        await worker.sender.send(body.update_info)
        return reply(message="Weights updated")
    if not body.weight_dir:
        return reply(
            status="ok",
            message="nothing was loaded: weight_dir names no directory",
            weight_version=worker.load_nothing(),
        )
    return reply(status="ok", **shown(await worker.take(body.weight_dir)))


@router.get("/weight_info")
async def weight_info(worker: TrainerOfRequest) -> Response:
    """Return the proved version, or null."""
    return reply(weight_version=label_of(worker.state.proved))


@router.post("/update_weight_version")
async def update_weight_version(
    worker: TrainerOfRequest, body: Annotated[VersionBody, Depends(Parsed(VersionBody))]
) -> Response:
    """Accept the proved version and no other."""
    named = rules.demand_proved(worker.state, body.new_version)
    return reply(success=True, new_version=named)


@router.post("/collective_rpc")
async def collective_rpc(
    worker: TrainerOfRequest,
    body: Annotated[RpcBody, Depends(Parsed(RpcBody, limit=SENT_BODY_BYTES))],
) -> Response:
    """Run a method that prime-rl, SkyRL or vLLM's clients call."""
    if body.method == rules.BROADCASTER:
        worker.refuse_broadcast()
    act = _ACTS.get(body.method)
    if act is None:
        worker.refuse_update(f"method: got {body.method:.100}, expected one of {', '.join(_ACTS)}")
    await act(worker, body)
    # Not before, because the call above may wait for the engine's boot.
    ranks = await worker.questions.world_size()
    return reply(results=[None] * ranks)


async def _load(worker: TrainerSession, body: RpcBody) -> None:
    """Load the directory of the one argument; the reply could not report that none was loaded."""
    name = "weight_dir" if body.method == _UPDATE_RPC else "weights_path"
    found = [*body.args, *(body.named[key] for key in body.named if key == name)]
    if len(found) != 1 or not isinstance(found[0], str) or not found[0]:
        worker.refuse_update(f"args: {body.method} expects one directory, as {name}")
    await worker.take(found[0])


async def _probe(worker: TrainerSession, _body: RpcBody) -> None:
    await worker.questions.demand_alive()


async def _discard(_worker: TrainerSession, _body: RpcBody) -> None:
    """Do nothing: no adapter is kept in memory. SkyRL calls it after each unload."""


async def _start(worker: TrainerSession, body: RpcBody) -> None:
    if body.named.get("is_checkpoint_format") is False:
        worker.refuse_update(FORM)
    await worker.sender.start()


async def _send(worker: TrainerSession, body: RpcBody) -> None:
    info = body.named.get("update_info")
    if not isinstance(info, dict):
        worker.refuse_update("kwargs: update_info is required")
    await worker.sender.send(info)


async def _finish(worker: TrainerSession, _body: RpcBody) -> None:
    await worker.sender.finish(None)


_ACTS: dict[str, Callable[[TrainerSession, RpcBody], Awaitable[None]]] = {
    _UPDATE_RPC: _load,
    "reload_weights": _load,
    "liveness_probe": _probe,
    # SkyRL's worker extension: the same calls as vLLM's routes.
    "skyrl_start_weight_update": _start,
    "update_weights_nccl": _send,
    "skyrl_finish_weight_update": _finish,
    "skyrl_discard_in_memory_lora": _discard,
}
