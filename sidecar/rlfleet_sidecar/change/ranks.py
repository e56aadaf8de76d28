"""Whether the processes of an engine's ranks are there."""

import asyncio

from rlfleet_sidecar.errors import EngineError, EngineFailedError, EngineLostError
from rlfleet_sidecar.vllm_client import EngineClient


async def do_ranks_answer(engine: EngineClient, limit_s: float) -> bool:
    """Return whether calls of the ranks succeed; True if that is not known in time.

    Once the process of a rank has exited, each call fails, and vLLM's engine ends 5 s later.
    """
    try:
        async with asyncio.timeout(limit_s):
            await engine.describe(())
    except EngineFailedError:
        return False
    except (TimeoutError, EngineError, EngineLostError):
        return True
    return True
