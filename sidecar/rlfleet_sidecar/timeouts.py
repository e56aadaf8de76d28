"""Bounds a step against the engine or the disk, and words what goes wrong in it."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import asynccontextmanager
from typing import TypeVar

from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.errors import EngineError, EngineLostError, EngineRestartedError, SidecarError
from rlfleet_sidecar.proof.probe import BadAnswerError

_GLANCE_S = 2.0
_Result = TypeVar("_Result")
_log = logging.getLogger(__name__)


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


class Glance:
    """Looks at a volume which may not answer, and which nothing hangs on. Blocking.

    A look that is silent for long, or fails, has seen nothing. While one hangs there is no
    other: each would leave a thread behind.
    """

    def __init__(self, patience_s: float = _GLANCE_S) -> None:
        self._patience_s = patience_s
        self._hanging: Future[bool] | None = None

    def sees(self, look: Callable[[], bool]) -> bool:
        """Tell whether the look says so."""
        if self._hanging is not None and not self._hanging.done():
            return False
        self._hanging = looking = _begun(look)
        try:
            return looking.result(self._patience_s)
        except (OSError, TimeoutError, FutureTimeoutError) as error:
            _log.warning("The trainer's volume does not answer", extra={"error": str(error)})
            return False


async def in_thread(work: Callable[[], _Result]) -> _Result:
    """Do what may block in a thread of its own, which may be left behind.

    On a mount whose server is gone it blocks for ever. Such a thread must not take a place in
    a pool that others wait for, and the process must end without it.
    """
    return await asyncio.wrap_future(_begun(work))


def _begun(work: Callable[[], _Result]) -> Future[_Result]:
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
    return ended
