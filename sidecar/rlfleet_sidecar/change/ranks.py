"""Whether the processes of an engine's ranks are there."""

import asyncio

from rlfleet_sidecar.errors import EngineError, EngineFailedError, EngineLostError
from rlfleet_sidecar.vllm_client import EngineClient


async def have_ranks_exited(engine: EngineClient, failure: str, limit_s: float) -> bool:
    """Return whether another call of the ranks fails as the load did, with the same words.

    Once the process of a rank has exited, each call does, and vLLM's engine ends 5 s later. A bad
    version fails its own load alone.
    """
    try:
        async with asyncio.timeout(limit_s):
            await engine.describe(())
    except EngineFailedError as error:
        return str(error) in failure
    except (TimeoutError, EngineError, EngineLostError):
        return False
    return False
