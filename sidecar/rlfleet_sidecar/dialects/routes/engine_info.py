"""Trainers' routes for questions about the engine, answered by vLLM."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rlfleet_contract.worker.dynamo import PATH
from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.dialects.replies import DialectRoute, TrainerOfRequest, reply, trainer_of
from rlfleet_sidecar.http.problems import MODELS_PATH
from rlfleet_sidecar.http.request_body import Parsed, TrainerBody
from rlfleet_sidecar.vllm_client import RelayedReply

router = APIRouter(route_class=DialectRoute)


class CacheBody(TrainerBody):
    """SkyRL sends the field in the body, vLLM's clients in the query."""

    reset_running_requests: bool = False


@router.post("/reset_prefix_cache")
async def reset_prefix_cache(
    worker: TrainerOfRequest,
    body: Annotated[CacheBody, Depends(Parsed(CacheBody, empty=b"{}"))],
    *,
    reset_running_requests: bool = False,
) -> Response:
    """Empty the KV and prefix cache; ``success`` is vLLM's."""
    is_forced = reset_running_requests or body.reset_running_requests
    return reply(success=await worker.reset_cache(reset_running=is_forced))


@router.get("/get_world_size")
async def get_world_size(worker: TrainerOfRequest, *, include_dp: bool = True) -> Response:
    """Return how many ranks the engine has."""
    return reply(world_size=await worker.questions.world_size(include_dp=include_dp))


@router.get(PATH)
async def workers(worker: TrainerOfRequest, request: Request) -> Response:
    """List this worker as Dynamo's discovery does, at the requested host."""
    found = await worker.questions.discovered(request.url.netloc)
    return JSONResponse(found.model_dump(mode="json", exclude_none=True))


@router.get(MODELS_PATH)
async def models(worker: TrainerOfRequest) -> Response:
    """Return the engine's bytes; wait for an engine that is down."""
    return _passed(await worker.questions.models())


@router.get("/server_info")
async def server_info(
    worker: TrainerOfRequest, config_format: Literal["text", "json"] = "text"
) -> Response:
    """Return what trainers read of vLLM's configuration, without environment and paths."""
    found = await worker.questions.server_info()
    if config_format == "text":
        found["vllm_config"] = str(found["vllm_config"])
    return JSONResponse(found)


@router.get("/metrics")
async def metrics(worker: TrainerOfRequest) -> Response:
    """Return the engine's bytes."""
    return _passed(await worker.questions.relayed("/metrics"))


def _passed(found: RelayedReply) -> Response:
    return Response(found.body, found.status, media_type=found.content_type)


async def health(request: Request) -> Response:
    """Return 200 if the engine answers."""
    is_up = (await trainer_of(request)).state.stage is not Stage.DOWN
    return JSONResponse({"status": "ok" if is_up else "unhealthy"}, 200 if is_up else 503)


async def liveness(request: Request) -> Response:
    """Report within two seconds whether the engine hangs, as prime-rl does."""
    is_alive = await (await trainer_of(request)).questions.is_alive()
    told = "ok" if is_alive else "engine_unresponsive"
    return JSONResponse({"status": told}, 200 if is_alive else 503)
