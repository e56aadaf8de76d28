"""Waits for what passes by itself: a trainer that is told to come again soon gives up."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from rlfleet_contract.problems import Code
from rlfleet_sidecar.errors import SidecarError

_AGAIN_S = 0.2
T = TypeVar("T")


async def patiently(
    act: Callable[[], Awaitable[T]], passing: Collection[Code], patience_s: float
) -> T:
    """Do it, and do it again as long as it is refused for what passes, within a time."""
    end = time.monotonic() + patience_s
    while True:
        try:
            return await act()
        except SidecarError as error:
            if error.code not in passing or time.monotonic() >= end:
                raise
        await asyncio.sleep(_AGAIN_S)
