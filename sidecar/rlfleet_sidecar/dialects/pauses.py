"""Trainers' pauses, which wait for other changes and for the engine's boot.

It must stay true that each has one effect, none after a resume that arrived during the wait,
and none for a trainer that has disconnected: it would not resume the worker.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar

from rlfleet_contract.single_flight import SingleFlight
from rlfleet_contract.worker.commands import PauseMode
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import WorkerReport
from rlfleet_sidecar.dialects.retry import patiently
from rlfleet_sidecar.errors import SidecarError

_LOOK_S = 0.2
_HUNG_UP = "cancelled: the client of this pause has disconnected"
RESUMED = "cancelled: a resume arrived while this pause waited"
ENDED = "cancelled: the sidecar is shutting down; send the pause again"
PauseKind = tuple[PauseMode, bool]
"""The mode of a pause, and whether it clears the caches."""


async def _stays() -> bool:
    return False


IS_GONE: ContextVar[Callable[[], Awaitable[bool]]] = ContextVar("is_gone", default=_stays)
"""Returns whether the client of the current request has disconnected."""


class _Pause:
    """A pause that waits or is under way."""

    def __init__(self, act: Callable[[], Awaitable[WorkerReport]]) -> None:
        self._act = act
        self.callers = 0
        self.withdrawn: str | None = None
        """Why it is cancelled, if it is."""

    async def act(self) -> WorkerReport:
        """Pause, unless it is cancelled."""
        # No await between this check and the begin of the pause.
        why = self.withdrawn if self.callers else _HUNG_UP
        if why is not None:
            raise SidecarError(Code.WRONG_STAGE, why)
        return await self._act()


class Pauses:
    """The pauses that wait or are under way; a repeat joins one."""

    def __init__(self, patience_s: Mapping[Code, float]) -> None:
        self._patience_s = patience_s
        self._pauses: dict[PauseKind, _Pause] = {}
        self._flight = SingleFlight[_Pause]()

    async def join(
        self, key: PauseKind, act: Callable[[], Awaitable[WorkerReport]]
    ) -> WorkerReport:
        """Pause as soon as possible, while the client stays connected."""
        pause = self._pauses.get(key)
        if pause is None or pause not in self._flight.keys:
            self._pauses[key] = pause = _Pause(act)
        task = self._flight.begin(pause, lambda: patiently(pause.act, self._patience_s))
        is_gone = IS_GONE.get()
        pause.callers += 1
        try:
            while not task.done() and not await is_gone():
                await asyncio.wait({task}, timeout=_LOOK_S)
        finally:
            pause.callers -= 1
        # Without a client it ends at its next try, or completes if it is under way.
        await asyncio.wait({task})
        return task.result()

    def withdraw(self, why: str) -> None:
        """Cancel the pauses that wait; one under way completes."""
        for pause in self._pauses.values():
            pause.withdrawn = why
        self._pauses.clear()
