"""Bounds a step against the engine, and words what goes wrong in it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rlfleet_contract.problems import Code
from rlfleet_sidecar.errors import (
    EngineError,
    EngineLostError,
    EngineRestartedError,
    SidecarError,
)
from rlfleet_sidecar.probe import BadAnswerError


@asynccontextmanager
async def within(
    code: Code, timeout_s: float, *, lost: Code = Code.ENGINE_UNREACHABLE
) -> AsyncIterator[None]:
    """Bound a step and give what goes wrong in it the step's code."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError as error:
        raise SidecarError(code, f"the engine was not done after {timeout_s:g} s") from error
    except (EngineError, BadAnswerError) as error:
        raise SidecarError(code, str(error)) from error
    except EngineLostError as error:
        raise SidecarError(lost, f"the engine went away: {error}") from error
    except EngineRestartedError as error:
        raise SidecarError(
            Code.ENGINE_RESTARTED, "the engine was restarted meanwhile: all that was proved is void"
        ) from error
