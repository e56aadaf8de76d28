"""Polls the engine every second, and ends changes without a driver.

It detects exits and restarts of the engine, and a pause that takes effect after it was undone.
It ends expired changes, because vLLM would stay paused for ever. For an engine that stays in
doubt it rejects waiting requests. It must stay true that it never acts during a command.
"""

import asyncio
import logging
import time

from rlfleet_contract.engine.gate import GateState
from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.change.executor import Executor
from rlfleet_sidecar.change.steps import Steps
from rlfleet_sidecar.change.ttl import AT_REST, ChangeTTL
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.state.journal import Journal
from rlfleet_sidecar.state.stage_machine import Rescue, has_no_pause, rescue

_SILENT_LOOKS = 3
"""An engine counts as lost after this many polls in a row without an answer."""
_ASKED_EVERY = 3
"""Every how many polls the core of an open engine is asked whether it is paused."""
_log = logging.getLogger(__name__)


class Watchdog:
    """Two background tasks, which run as long as the sidecar."""

    def __init__(
        self,
        settings: SidecarSettings,
        steps: Steps,
        journal: Journal,
        executor: Executor,
        leadership: ChangeTTL,
    ) -> None:
        self._settings = settings
        self._steps = steps
        self._journal = journal
        self._executor = executor
        self._leadership = leadership
        self._silent = 0
        self._open = 0
        """Polls of an open engine since its core was asked."""
        self._doubted: str | None = None
        """The boot in doubt at the last poll."""
        self._doubted_at = 0.0
        """Since when, on the monotonic clock."""

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            try:
                await self.look()
            except SidecarError as error:
                _log.warning("Watchdog failed to act", extra={"error": error.message})
            except Exception:  # noqa: BLE001 - the watchdog must continue
                _log.exception("Watchdog failed by an internal error")
            rest_s = self._leadership.rest_s
            await asyncio.sleep(min(self._settings.poll_s, rest_s or self._settings.poll_s))

    async def keep(self) -> None:
        """Renew the gate's deadline, during commands too, until cancelled."""
        while True:
            await asyncio.sleep(self._settings.poll_s)
            is_changing = self._executor.flight.key is not None
            if is_changing or self._journal.state.stage not in AT_REST:
                await self._steps.keep(self._leadership.rest_s)

    async def look(self) -> None:
        """Poll the engine once, and act unless a command is under way."""
        self._note_doubt()
        flight, taken = self._executor.flight, self._leadership.taken
        if flight.key is not None:
            return
        gate = await self._seen()
        is_old = flight.key is not None or self._leadership.taken != taken
        if is_old or 0 < self._silent < _SILENT_LOOKS:
            # A command was accepted during the poll, or the engine may be only slow. A rejected
            # command does not count: its repeats must not keep the sidecar from acting.
            return
        self._steps.observe(gate)
        self._journal.catch_up()
        if gate is None:
            return
        self._steps.note_due(gate)
        if self._steps.is_cold(gate):
            await self._steps.warm_up(gate)
        else:
            await self._act(gate)
            await self._steps.adapters.look(gate.boot)

    async def _seen(self) -> GateState | None:
        try:
            gate = await self._steps.look()
        except TimeoutError:
            self._silent += 1
            return None
        self._silent = 0
        return gate

    async def _act(self, gate: GateState) -> None:
        stage = self._journal.state.stage
        way = rescue(stage)
        # A terminating pod gets no further command, and its waiting requests would be lost.
        # An expired gate shows that this change's TTL is over.
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
        """Record since when this boot is in doubt, if it is."""
        state = self._journal.state
        doubted = state.boot if state.stage is Stage.DOUBT else None
        if doubted != self._doubted:
            self._doubted, self._doubted_at = doubted, time.monotonic()

    def _is_given_up(self, gate: GateState) -> bool:
        """Return whether requests must stop waiting for an engine in doubt.

        That is after a time, or in a terminating pod. A doubt of this poll counts with the next.
        """
        if self._journal.state.stage is not Stage.DOUBT or self._doubted != gate.boot:
            return False
        doubted_s = time.monotonic() - self._doubted_at
        return gate.is_draining or doubted_s >= self._settings.doubt_wait_s

    async def _is_halted(self) -> bool:
        """Return whether an engine is paused that should serve; asks at every few polls."""
        self._open = self._open + 1 if self._journal.state.stage is Stage.OPEN else 0
        if self._open < _ASKED_EVERY:
            return False
        self._open = 0
        # A command may have paused it before the answer.
        return await self._steps.is_halted() and self._executor.flight.key is None
