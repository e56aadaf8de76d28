"""Dynamo's worker routes, POST /engine/<route>, with `status` in the body and an HTTP status.

Both generations are served: the flat names of its Python worker, and `control/` and
`update/` of its native sidecar, which replies in vLLM's form.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.responses import JSONResponse, Response

from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.change.transfer import Info
from rlfleet_sidecar.dialects import rules
from rlfleet_sidecar.dialects.replies import DialectRoute, Fields, TrainerOfRequest, refusal, shown
from rlfleet_sidecar.dialects.routes import dynamo_lora
from rlfleet_sidecar.dialects.routes.lora import LibraryOfRequest
from rlfleet_sidecar.dialects.routes.pause import demand_level
from rlfleet_sidecar.dialects.routes.weight_transfer import DRAFT, FORM, SENT_BODY_BYTES
from rlfleet_sidecar.dialects.session import TrainerSession
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.http.request_body import Parsed
from rlfleet_sidecar.state.preconditions import demand_up
from rlfleet_sidecar.state.sent_weights import label_of

_NOT_FOUND = 404
router = APIRouter(route_class=DialectRoute)


class DynamoBody(dynamo_lora.LoRAFields):
    """The fields of all these routes."""

    request_id: str | None = None
    mode: str | None = None
    clear_cache: bool = True
    model_path: str | None = None
    weight_version: str | None = None
    new_version: str | None = None
    level: int = 1
    tags: list[str] | None = None
    engine_rpc: str | None = None
    init_info: dict[str, Any] | None = None
    update_info: Info | None = None
    is_checkpoint_format: bool = True
    allow_unpaused: bool = False
    reset_prefix_cache: bool = True


_Act = Callable[[TrainerSession, DynamoBody], Awaitable[Fields]]


def _as(status: str, act: _Act) -> _Act:
    """Return a route of the native sidecar, whose ``status`` is not ``ok``."""

    async def acted(worker: TrainerSession, body: DynamoBody) -> Fields:
        return await act(worker, body) | {"status": status}

    return acted


async def _pause(worker: TrainerSession, body: DynamoBody) -> Fields:
    mode = rules.mode_of(body.mode)
    await worker.pause(mode, clear_cache=body.clear_cache)
    return {"message": "paused", "mode": mode.lower(), "clear_cache": body.clear_cache}


async def _resume(worker: TrainerSession, _body: DynamoBody) -> Fields:
    await worker.resume()
    return {"message": "resumed"}


async def _update(worker: TrainerSession, body: DynamoBody) -> Fields:
    """Load a directory into a paused worker; always flushes the caches, as Dynamo does."""
    if not body.model_path:
        return {
            "message": "nothing was loaded: model_path names no directory",
            "version": worker.load_nothing(),
        }
    report = await worker.update(
        body.model_path, named=body.weight_version, must_be_paused=True, preserve=False
    )
    return {"message": "loaded and proved", "version": label_of(report.proved), **shown(report)}


async def _flush(worker: TrainerSession, _body: DynamoBody) -> Fields:
    if not await worker.reset_cache(reset_running=False):
        raise SidecarError(
            Code.FLUSH_FAILED, "flush failed: running requests hold blocks; pause first"
        )
    return {"success": True}


async def _version(worker: TrainerSession, _body: DynamoBody) -> Fields:
    proved = label_of(worker.state.proved)
    return {"version": proved, "version_declared": proved is not None, "weight_version": proved}


async def _agree(worker: TrainerSession, body: DynamoBody) -> Fields:
    named = body.new_version or body.weight_version
    if named is None:
        raise SidecarError(Code.INVALID_REQUEST, "new_version: is required")
    return {"success": True, "new_version": rules.demand_proved(worker.state, named)}


async def _alive(worker: TrainerSession, _body: DynamoBody) -> Fields:
    await worker.questions.demand_alive()
    return {"alive": True}


async def _is_paused(worker: TrainerSession, _body: DynamoBody) -> Fields:
    demand_up(worker.state.stage)
    is_paused = rules.is_paused(worker.state)
    return {"is_paused": is_paused, "is_sleeping": is_paused}


async def _sleep(worker: TrainerSession, body: DynamoBody) -> Fields:
    demand_level(body.level)
    return await _pause(worker, body) | {"level": body.level}


async def _wake_up(worker: TrainerSession, body: DynamoBody) -> Fields:
    return await _resume(worker, body) | {"tags": body.tags}


async def _abort(worker: TrainerSession, body: DynamoBody) -> Fields:
    if not body.request_id:
        raise SidecarError(Code.INVALID_REQUEST, "request_id: is required")
    await worker.abort(body.request_id)
    return {"request_id": body.request_id}


async def _init(worker: TrainerSession, body: DynamoBody) -> Fields:
    if body.init_info is None:
        raise SidecarError(Code.INVALID_REQUEST, "init_info: is required")
    await worker.sender.init(body.init_info)
    return {"message": "Weight transfer initialized"}


async def _start(worker: TrainerSession, body: DynamoBody) -> Fields:
    if not body.is_checkpoint_format:
        worker.refuse_update(FORM)
    if body.allow_unpaused:
        await worker.start_unpaused(clear_cache=body.reset_prefix_cache)
    else:
        await worker.sender.start()
    return {"message": "Weight update started"}


async def _send(worker: TrainerSession, body: DynamoBody) -> Fields:
    if body.update_info is None:
        worker.refuse_update("update_info: is required")
    await worker.sender.send(body.update_info)
    return {"message": "Weights updated"}


async def _finish(worker: TrainerSession, body: DynamoBody) -> Fields:
    report = await worker.finish_sending(body.weight_version)
    return {"message": "Weight update finished", **shown(report)}


async def _draft(worker: TrainerSession, _body: DynamoBody) -> Fields:
    worker.refuse_update(DRAFT)


async def _group(worker: TrainerSession, body: DynamoBody) -> Fields:
    if body.engine_rpc in {None, rules.BROADCASTER}:
        worker.refuse_broadcast()
    if body.engine_rpc != "init_weight_transfer_engine":
        raise SidecarError(Code.INVALID_REQUEST, rules.OTHER_ENGINE)
    return await _init(worker, body)


async def _distributed(worker: TrainerSession, body: DynamoBody) -> Fields:
    act = _SENDING.get(body.engine_rpc or "")
    if act is None:
        worker.refuse_update(rules.OTHER_ENGINE)
    return await act(worker, body)


async def _tensor(worker: TrainerSession, _body: DynamoBody) -> Fields:
    worker.refuse_update(rules.OTHER_ENGINE)


_SENDING: dict[str, _Act] = {
    "start_weight_update": _start,
    "update_weights": _send,
    "finish_weight_update": _finish,
}
"""The engine's methods that NeMo-RL calls."""
_ACTS: dict[str, _Act] = {
    "pause_generation": _pause,
    "resume_generation": _resume,
    "flush_cache": _flush,
    "abort_request": _abort,
    "sleep": _sleep,
    "wake_up": _wake_up,
    "update_weights_from_disk": _update,
    "get_weight_version": _version,
    "set_weight_version": _agree,
    "is_paused": _is_paused,
    "liveness_probe": _alive,
    "init_weights_update_group": _group,
    "update_weights_from_distributed": _distributed,
    "update_weights_from_tensor": _tensor,
    "control/pause_generation": _as("paused", _pause),
    "control/resume_generation": _as("resumed", _resume),
    "control/is_paused": _is_paused,
    "control/is_sleeping": _is_paused,
    "control/get_weight_version": _version,
    "control/sleep": _as("sleeping", _sleep),
    "control/wake_up": _as("awake", _wake_up),
    "update/update_weight_version": _agree,
    "update/init_weight_transfer_engine": _init,
    "update/start_weight_update": _start,
    "update/start_draft_weight_update": _draft,
    "update/update_weights": _send,
    "update/finish_weight_update": _finish,
}
ROUTES = (*_ACTS, *dynamo_lora.ACTS)


@router.post("/engine/{name:path}")
async def engine(
    worker: TrainerOfRequest,
    library: LibraryOfRequest,
    name: str,
    body: Annotated[DynamoBody, Depends(Parsed(DynamoBody, b"{}", SENT_BODY_BYTES))],
) -> Response:
    """Run one of Dynamo's routes."""
    if name in dynamo_lora.ACTS:
        return JSONResponse(await dynamo_lora.ACTS[name](library, body))
    act = _ACTS.get(name)
    if act is None:
        why = f"unknown route /engine/{name:.100} (known: {', '.join(sorted(ROUTES))})"
        return refusal(SidecarError(Code.INVALID_REQUEST, why), _NOT_FOUND)
    return JSONResponse({"status": "ok"} | await act(worker, body))
