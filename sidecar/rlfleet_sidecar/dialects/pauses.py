"""The pauses that trainers ask for, which wait for other changes of the worker and its engine.

It must stay true that one comes once, never after a resume that came while it waited, and
not for a trainer that has hung up: nobody would resume what it has paused.
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
_HUNG_UP = "whoever asked for this pause has hung up"
RESUMED = "a resume came while this pause waited"
ENDED = "the sidecar ended while this pause waited"
PauseKind = tuple[PauseMode, bool]
"""What a pause asks for: how, and whether the caches shall be emptied."""


async def _stays() -> bool:
    return False


IS_GONE: ContextVar[Callable[[], Awaitable[bool]]] = ContextVar("is_gone", default=_stays)
"""Tells whether the client whose request is being answered has hung up."""


class _Pause:
    """One that waits or is under way."""

    def __init__(self, act: Callable[[], Awaitable[WorkerReport]]) -> None:
        self._act = act
        self.callers = 0
        self.withdrawn: str | None = None
        """Why it must not come any more, if it has not yet."""

    async def act(self) -> WorkerReport:
        """Pause, if it still may."""
        # From here until it is refused or under way nothing else runs.
        why = self.withdrawn if self.callers else _HUNG_UP
        if why is not None:
            raise SidecarError(Code.WRONG_STAGE, why)
        return await self._act()


class Pauses:
    """Those that wait or are under way; the same pause joins one."""

    def __init__(self, patience_s: Mapping[Code, float]) -> None:
        self._patience_s = patience_s
        self._pauses: dict[PauseKind, _Pause] = {}
        self._flight = SingleFlight[_Pause]()

    async def join(
        self, key: PauseKind, act: Callable[[], Awaitable[WorkerReport]]
    ) -> WorkerReport:
        """Pause when nobody else is in the way, for as long as the client waits for that."""
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
        # Nobody is left, and it ends at its next try; or it is under way and lands.
        await asyncio.wait({task})
        return task.result()

    def withdraw(self, why: str) -> None:
        """See that none comes that only waits; one that is under way goes on."""
        for pause in self._pauses.values():
            pause.withdrawn = why
        self._pauses.clear()
