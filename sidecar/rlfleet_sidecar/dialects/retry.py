"""Retries calls after temporary problems, because many trainers exit after a single error."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.staging.prepare_job import SupersededError

_AGAIN_S = 0.2
T = TypeVar("T")


def patience_of(settings: SidecarSettings) -> Mapping[Code, float]:
    """Return for how many seconds a trainer's call is retried, by the problem's code."""
    return {
        Code.BUSY: settings.trainer_busy_s,
        Code.ENGINE_UNREACHABLE: settings.trainer_up_s,
        Code.ENGINE_RESTARTED: settings.trainer_up_s,
    }


async def patiently(act: Callable[[], Awaitable[T]], patience_s: Mapping[Code, float]) -> T:
    """Call ``act``, and retry it as long as its problem's code allows."""
    begun = time.monotonic()
    while True:
        try:
            return await act()
        except SupersededError:
            # A retry would replace the newer call.
            raise
        except SidecarError as error:
            if time.monotonic() - begun >= patience_s.get(error.code, 0.0):
                raise
        await asyncio.sleep(_AGAIN_S)
