"""Dynamo's worker routes, POST /engine/<route>: `status` in the body and a true HTTP code.

Both generations are served: the flat names of its Python worker, and `control/` and
`update/` of its native sidecar, which answers in vLLM's words.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict
from starlette.responses import JSONResponse, Response

from rlfleet_contract.problems import Code
from rlfleet_sidecar.bodies import Parsed
from rlfleet_sidecar.dialects import meaning
from rlfleet_sidecar.dialects.generation import demand_level
from rlfleet_sidecar.dialects.replies import DialectRoute, Fields, Worker, refusal, shown
from rlfleet_sidecar.dialects.trainer import Trainer
from rlfleet_sidecar.dialects.weights import TRANSFER
from rlfleet_sidecar.errors import SidecarError

_NOT_FOUND = 404
router = APIRouter(route_class=DialectRoute)


class Body(BaseModel):
    """What any of the routes takes; what none of them knows is left unread."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())

    mode: str | None = None
    clear_cache: bool = True
    model_path: str | None = None
    weight_version: str | None = None
    new_version: str | None = None
    level: int = 1
    tags: list[str] | None = None


Act = Callable[[Trainer, Body], Awaitable[Fields]]


async def _pause(worker: Trainer, body: Body) -> Fields:
    mode = meaning.mode_of(body.mode)
    await worker.pause(mode, clear_cache=body.clear_cache)
    return {"message": "paused", "mode": mode.lower(), "clear_cache": body.clear_cache}


async def _resume(worker: Trainer, _body: Body) -> Fields:
    await worker.resume()
    return {"message": "resumed"}


async def _update(worker: Trainer, body: Body) -> Fields:
    """Load a directory into a paused worker; the caches are always emptied, as upstream."""
    if not body.model_path:
        return {
            "message": "nothing was loaded: model_path names no directory",
            "version": worker.state.proved,
        }
    report = await worker.update(
        body.model_path, named=body.weight_version, must_be_paused=True, preserve=False
    )
    return {"message": "loaded and proved", "version": report.proved, **shown(report)}


async def _flush(worker: Trainer, _body: Body) -> Fields:
    if not await worker.reset_cache(reset_running=False):
        raise SidecarError(
            Code.FLUSH_FAILED, "the caches were not emptied: requests that run hold blocks"
        )
    return {"success": True}


async def _version(worker: Trainer, _body: Body) -> Fields:
    proved = worker.state.proved
    return {"version": proved, "version_declared": proved is not None, "weight_version": proved}


async def _agree(worker: Trainer, body: Body) -> Fields:
    named = body.new_version or body.weight_version
    if named is None:
        raise SidecarError(Code.INVALID_REQUEST, "new_version: is missing")
    return {"success": True, "new_version": meaning.demand_proved(worker.state, named)}


async def _alive(worker: Trainer, _body: Body) -> Fields:
    meaning.demand_up(worker.state)
    return {"alive": True}


async def _told_paused(worker: Trainer, _body: Body) -> Fields:
    meaning.demand_up(worker.state)
    is_paused = meaning.is_paused(worker.state)
    return {"is_paused": is_paused, "is_sleeping": is_paused}


async def _control_pause(worker: Trainer, body: Body) -> Fields:
    return await _pause(worker, body) | {"status": "paused"}


async def _control_resume(worker: Trainer, body: Body) -> Fields:
    return await _resume(worker, body) | {"status": "resumed"}


async def _sleep(worker: Trainer, body: Body) -> Fields:
    demand_level(body.level)
    return await _pause(worker, body) | {"status": "sleeping", "level": body.level}


async def _wake_up(worker: Trainer, body: Body) -> Fields:
    return await _resume(worker, body) | {"status": "awake", "tags": body.tags}


async def _init(_worker: Trainer, _body: Body) -> Fields:
    raise SidecarError(Code.INVALID_REQUEST, TRANSFER)


async def _transfer(worker: Trainer, _body: Body) -> Fields:
    worker.refuse_update(TRANSFER)


ROUTES: dict[str, Act] = {
    "pause_generation": _pause,
    "resume_generation": _resume,
    "flush_cache": _flush,
    "update_weights_from_disk": _update,
    "get_weight_version": _version,
    "set_weight_version": _agree,
    "is_paused": _told_paused,
    "liveness_probe": _alive,
    "init_weights_update_group": _init,
    "update_weights_from_distributed": _transfer,
    "update_weights_from_tensor": _transfer,
    "control/pause_generation": _control_pause,
    "control/resume_generation": _control_resume,
    "control/is_paused": _told_paused,
    "control/is_sleeping": _told_paused,
    "control/get_weight_version": _version,
    "control/sleep": _sleep,
    "control/wake_up": _wake_up,
    "update/update_weight_version": _agree,
    "update/init_weight_transfer_engine": _init,
    "update/start_weight_update": _transfer,
    "update/start_draft_weight_update": _transfer,
    "update/update_weights": _transfer,
    "update/finish_weight_update": _transfer,
}


@router.post("/engine/{name:path}")
async def engine(
    worker: Worker, name: str, body: Annotated[Body, Depends(Parsed(Body, empty=b"{}"))]
) -> Response:
    """Carry out one of Dynamo's routes."""
    act = ROUTES.get(name)
    if act is None:
        why = f"there is no /engine/{name:.100}; there are {', '.join(sorted(ROUTES))}"
        return refusal(SidecarError(Code.INVALID_REQUEST, why), _NOT_FOUND)
    return JSONResponse({"status": "ok"} | await act(worker, body))
