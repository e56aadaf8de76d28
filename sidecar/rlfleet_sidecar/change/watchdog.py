"""Looks at the engine every second and ends changes that nobody leads.

It sees deaths and restarts of the engine, and it is the dead-man switch: a paused vLLM
alone stays paused for ever, and a pause that nobody waits for any more may land after it was
undone. Of an engine that stays in doubt it tells those who wait. It must stay true that it
never acts beside a command.
"""

import asyncio
import logging
import time

from rlfleet_contract.engine.gate import GateState
from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.change.executor import Executor
from rlfleet_sidecar.change.steps import Steps
from rlfleet_sidecar.change.ttl import AT_REST, Leadership
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.state.journal import Journal
from rlfleet_sidecar.state.stage_machine import Rescue, has_no_pause, rescue

_SILENT_LOOKS = 3
"""An engine that is only slow is not lost; this many silent looks in a row are a loss."""
_ASKED_EVERY = 3
"""Whether an open engine runs is asked of its core, and not with each look."""
_log = logging.getLogger(__name__)


class Watchdog:
    """Runs beside the routes for as long as the sidecar lives."""

    def __init__(
        self,
        settings: SidecarSettings,
        steps: Steps,
        journal: Journal,
        executor: Executor,
        leadership: Leadership,
    ) -> None:
        self._settings = settings
        self._steps = steps
        self._journal = journal
        self._executor = executor
        self._leadership = leadership
        self._silent = 0
        self._open = 0
        """Looks at an open engine since it was asked whether it runs."""
        self._doubted: str | None = None
        """The boot that the last look found in doubt."""
        self._doubted_at = 0.0
        """Since when it did, by the monotonic clock."""

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            try:
                await self.look()
            except SidecarError as error:
                _log.warning("A pass of the watchdog failed", extra={"error": error.message})
            except Exception:  # noqa: BLE001 - a watch that ends sees nothing any more
                _log.exception("A pass of the watchdog failed by a defect of the sidecar")
            rest_s = self._leadership.rest_s
            await asyncio.sleep(min(self._settings.poll_s, rest_s or self._settings.poll_s))

    async def keep(self) -> None:
        """Show the gate that the sidecar lives, beside commands too; until cancelled."""
        while True:
            await asyncio.sleep(self._settings.poll_s)
            is_changing = self._executor.flight.key is not None
            if is_changing or self._journal.state.stage not in AT_REST:
                await self._steps.keep(self._leadership.rest_s)

    async def look(self) -> None:
        """See how the engine stands, and act if nobody else does."""
        self._note_doubt()
        flight, taken = self._executor.flight, self._leadership.taken
        if flight.key is not None:
            return
        gate = await self._seen()
        is_old = flight.key is not None or self._leadership.taken != taken
        if is_old or 0 < self._silent < _SILENT_LOOKS:
            # A command began meanwhile, or nobody knows yet. One that was refused changed
            # nothing: whoever repeats such a one must not keep the sidecar from acting.
            return
        self._steps.heed(gate)
        self._journal.catch_up()
        if gate is None:
            return
        self._steps.note_due(gate)
        if self._steps.is_cold(gate):
            await self._steps.warm_up(gate)
            self._steps.heed(gate)
        else:
            await self._tend(gate)
            await self._steps.adapters.look(gate.boot)

    async def _seen(self) -> GateState | None:
        try:
            gate = await self._steps.look()
        except TimeoutError:
            self._silent += 1
            return None
        self._silent = 0
        return gate

    async def _tend(self, gate: GateState) -> None:
        stage = self._journal.state.stage
        way = rescue(stage)
        # A pod that ends gets no command more, and whoever is held at its gate would be lost.
        # A gate that has acted alone did so after this change's time to live.
        is_over = self._leadership.rest_s == 0 or gate.is_expired
        is_left = is_over or (gate.is_draining and way is not Rescue.END)
        is_left = is_left or has_no_pause(stage, is_open=gate.is_open)
        if way is not None and is_left:
            self._leadership.postpone()
            await self._executor.rescue(way)
        elif not gate.is_refusing and self._is_given_up(gate):
            await self._executor.rescue(Rescue.TURN_AWAY)
        elif gate.is_open != (stage is Stage.OPEN) or await self._is_halted():
            await self._executor.rescue(Rescue.ALIGN)

    def _note_doubt(self) -> None:
        """Remember since when this start of the engine is in doubt, if it is."""
        state = self._journal.state
        doubted = state.boot if state.stage is Stage.DOUBT else None
        if doubted != self._doubted:
            self._doubted, self._doubted_at = doubted, time.monotonic()

    def _is_given_up(self, gate: GateState) -> bool:
        """Tell whether an engine in doubt is waited for in vain.

        It is after a while, and in a pod that ends; what this look has found counts with the next.
        """
        if self._journal.state.stage is not Stage.DOUBT or self._doubted != gate.boot:
            return False
        doubted_s = time.monotonic() - self._doubted_at
        return gate.is_draining or doubted_s >= self._settings.doubt_wait_s

    async def _is_halted(self) -> bool:
        """Tell whether an engine is paused that should serve; asks at every few looks."""
        self._open = self._open + 1 if self._journal.state.stage is Stage.OPEN else 0
        if self._open < _ASKED_EVERY:
            return False
        self._open = 0
        # By the time of the answer a command may have paused it.
        return await self._steps.is_halted() and self._executor.flight.key is None
