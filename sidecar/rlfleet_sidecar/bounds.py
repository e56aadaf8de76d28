"""Bounds a step against the engine or the disk, and words what goes wrong in it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import TypeVar

from rlfleet_contract.problems import Code
from rlfleet_sidecar.errors import (
    EngineError,
    EngineLostError,
    EngineRestartedError,
    SidecarError,
)
from rlfleet_sidecar.probe import BadAnswerError

_Result = TypeVar("_Result")


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


async def in_thread(work: Callable[[], _Result]) -> _Result:
    """Do what may block in a thread of its own, which may be left behind.

    On a mount whose server is gone it blocks for ever. Such a thread must not take a place in
    a pool that others wait for, and the process must end without it.
    """
    ended: Future[_Result] = Future()
    ended.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            ended.set_exception(error)
        else:
            ended.set_result(result)

    threading.Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(ended)
