"""Timeouts for the engine and the disk, and the problems that they cause."""

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
    """Limit a step's time, and turn its errors into problems with this code."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError as error:
        why = f"the engine did not answer within {timeout_s:g} s; see vLLM's log"
        raise SidecarError(code, why) from error
    except (EngineError, BadAnswerError) as error:
        raise SidecarError(code, str(error)) from error
    except EngineLostError as error:
        raise SidecarError(lost, f"lost the engine ({error}); retry when it is up") from error
    except EngineRestartedError as error:
        raise SidecarError(
            Code.ENGINE_RESTARTED,
            "the engine restarted during the command; its weights must be proved again",
        ) from error


class Glance:
    """Checks of a volume that may not answer, where false is a safe answer. Blocking.

    A check that times out or fails counts as false. While one hangs, no other starts, because
    each would leave a thread behind.
    """

    def __init__(self, patience_s: float = _GLANCE_S) -> None:
        self._patience_s = patience_s
        self._hanging: Future[bool] | None = None

    def sees(self, look: Callable[[], bool]) -> bool:
        """Return the result of a check, or False."""
        if self._hanging is not None and not self._hanging.done():
            return False
        self._hanging = looking = _begun(look)
        try:
            return looking.result(self._patience_s)
        except (OSError, TimeoutError, FutureTimeoutError) as error:
            _log.warning("Weights volume not answering", extra={"error": str(error)})
            return False


async def in_thread(work: Callable[[], _Result]) -> _Result:
    """Run blocking work in a daemon thread of its own.

    On a mount whose server is gone it blocks for ever. Such a thread must not occupy a pool,
    and must not keep the process from ending.
    """
    return await asyncio.wrap_future(_begun(work))


def _begun(work: Callable[[], _Result]) -> Future[_Result]:
    ended: Future[_Result] = Future()
    ended.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - the waiting caller raises it
            ended.set_exception(error)
        else:
            ended.set_result(result)

    threading.Thread(target=run, daemon=True).start()
    return ended
