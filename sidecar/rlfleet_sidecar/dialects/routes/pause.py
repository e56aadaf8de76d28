"""Pause and resume in the form of prime-rl, SkyRL, TRL and vLLM's own clients.

vLLM's sleep with level 0 is a pause; other levels release the weights' memory.
"""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.dialects import rules
from rlfleet_sidecar.dialects.replies import DialectRoute, TrainerOfRequest, reply
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.state.preconditions import demand_up

router = APIRouter(route_class=DialectRoute)


@router.post("/pause")
async def pause(
    worker: TrainerOfRequest, mode: str | None = None, *, clear_cache: bool = True
) -> Response:
    """Close the gate and pause the engine; a pause of a paused worker is the same."""
    wanted = rules.mode_of(mode)
    await worker.pause(wanted, clear_cache=clear_cache)
    return reply(status="paused", mode=wanted.lower(), clear_cache=clear_cache)


@router.post("/resume")
async def resume(worker: TrainerOfRequest) -> Response:
    """Open the gate over what is proved; rejected after a failed update."""
    await worker.resume()
    return reply(status="resumed")


@router.get("/is_paused")
async def is_paused(worker: TrainerOfRequest) -> Response:
    """Return whether requests wait: true unless the gate is open."""
    demand_up(worker.state.stage)
    return reply(is_paused=rules.is_paused(worker.state))


@router.post("/sleep")
async def sleep(worker: TrainerOfRequest, level: int = 1, mode: str | None = None) -> Response:
    """Pause, if the level is 0; any other is rejected."""
    demand_level(level)
    await worker.pause(rules.mode_of(mode), clear_cache=True)
    return reply(status="sleeping", level=level)


@router.post("/wake_up")
async def wake_up(
    worker: TrainerOfRequest, tags: Annotated[list[str] | None, Query()] = None
) -> Response:
    """Resume, for any tags: the memory was never released."""
    await worker.resume()
    return reply(status="awake", tags=tags)


@router.get("/is_sleeping")
async def is_sleeping(worker: TrainerOfRequest) -> Response:
    """Return the same as /is_paused."""
    demand_up(worker.state.stage)
    return reply(is_sleeping=rules.is_paused(worker.state))


def demand_level(level: int) -> None:
    """Raise for a level that would release the weights' memory."""
    if level != 0:
        raise SidecarError(
            Code.INVALID_REQUEST,
            f"level: {level} would release the weights' memory; use level 0, a pause",
        )
