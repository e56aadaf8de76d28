"""Gives the engine's gate a deadline, so that a change ends even without the sidecar.

The gate's deadline is a few seconds after the sidecar's. It must stay true that the gate's
fallback is never better than the recorded stage: a worse stage reaches the gate first, a
better one the journal first.
"""

import asyncio
from contextlib import suppress

from rlfleet_contract.engine.gate import Fallback, GateState
from rlfleet_sidecar.errors import EngineError, EngineLostError, EngineRestartedError
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.state.journal import Journal
from rlfleet_sidecar.state.stage_machine import fallback
from rlfleet_sidecar.vllm_client import EngineClient

_LATER_S = 5.0
"""How much later than the sidecar's, which acts within two polls."""
_LOOK_S = 2.0


class GateDeadline:
    """Sets and renews the gate's deadline."""

    def __init__(self, settings: SidecarSettings, engine: EngineClient, journal: Journal) -> None:
        self._engine = engine
        self._journal = journal
        self._later_s = max(_LATER_S, 5 * settings.poll_s)
        self.gate: GateState | None = None
        """The gate at the last poll."""

    @property
    def ttl_s(self) -> float | None:
        """The deadline from now; None without a change, or for a gate without deadlines."""
        return self._after(None)

    async def close(self, boot: str) -> None:
        """Close the gate, with a deadline during a change."""
        ttl_s = self.ttl_s
        way = None if ttl_s is None else fallback(self._journal.state)
        await self._engine.close_gate(boot, ttl_s, way)

    async def demand_closed(self, boot: str) -> None:
        """Set the gate's fallback to refuse; raises if the gate has already opened or expired."""
        if (ttl_s := self.ttl_s) is not None:
            gate = await self._engine.keep_gate(boot, ttl_s, "refuse")
            if gate.is_open or gate.is_expired:
                raise EngineError("the gate's deadline ended the change; pause again")

    async def end_trial(self, boot: str) -> int:
        """Send the answers of proved weights; raises if the gate has ended them already.

        Returns how many loads the gate has counted.
        """
        gate = await self._engine.end_trial(boot, is_proved=True)
        if gate.is_expired:
            raise EngineError("the gate's deadline ended the proof; load the version again")
        return gate.loads

    async def keep(self, way: Fallback | None = None, *, rest_s: float | None = None) -> None:
        """Renew the deadline, if there is one; the watchdog detects a lost engine."""
        boot, ttl_s = self._journal.state.boot, self._after(rest_s)
        if boot is None or ttl_s is None:
            return
        with suppress(TimeoutError, EngineError, EngineLostError, EngineRestartedError):
            async with asyncio.timeout(_LOOK_S):
                await self._engine.keep_gate(boot, ttl_s, way)

    def _after(self, rest_s: float | None) -> float | None:
        lead = self._journal.lead
        if lead is None or self.gate is None or not self.gate.has_deadline:
            return None
        return (lead.ttl_s if rest_s is None else rest_s) + self._later_s
