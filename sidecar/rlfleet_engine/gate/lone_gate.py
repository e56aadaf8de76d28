"""Ends a change without the sidecar when the gate's deadline has passed.

Fallback open: resume the engine and open the gate over the last proved version. Fallback refuse:
reject requests at the gate and abort those in the engine. The gate must never open over unproved
weights, or after a sidecar has moved it.

If the core dies in a change, the gate rejects requests at once. vLLM's server then stops to
listen, so that no sidecar reaches the gate, and exits only after every request has its reply.
"""

import asyncio

from rlfleet_engine import json_logs
from rlfleet_engine.asgi import Scope
from rlfleet_engine.gate.deadline import OnExpiry
from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.gate.held_request import Application
from rlfleet_engine.gate.inner_client import FAILED, has_died, status_of

_LOOK_S = 0.25
"""The poll interval: another process may have ended or renewed the deadline."""
_RESUME_S = 10.0
_log = json_logs.logger(__name__)


class LoneGate:
    """Watches the deadline in the process that received it from the sidecar."""

    def __init__(self, app: Application, gate: Gate) -> None:
        self._app = app
        self._gate = gate
        self._watching: asyncio.Task[None] | None = None

    def watch(self, scope: Scope) -> None:
        """Start to watch the deadline; ``scope`` is that of the request that set it."""
        if self._gate.deadline.rest_s is None:
            return
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch(scope))

    async def _watch(self, scope: Scope) -> None:
        while (rest_s := self._gate.deadline.rest_s) is not None:
            if await has_died(self._app, scope):
                self._give_up()
            elif rest_s > 0:
                await asyncio.sleep(min(rest_s, _LOOK_S))
            else:
                await self._act(scope)

    async def _act(self, scope: Scope) -> None:
        way, turn = self._taken()
        _log.warning("Sidecar is silent: the gate ends its change", extra={"fallback": way.name})
        if way is OnExpiry.OPEN:
            is_running = await self._is_resumed(scope)
            with self._gate.locked():
                if self._gate.deadline.turn != turn:
                    return
                if is_running and self._gate.is_proved:
                    self._gate.open()
                else:
                    self._gate.refuse()
        elif way is OnExpiry.REFUSE:
            # The call waits for a reload under way.
            await self._asked(scope, "/pause", b"mode=abort&clear_cache=true")

    def _give_up(self) -> None:
        """Reject waiting requests, because this boot of the engine answers none."""
        _log.warning("Engine core died during a change: rejecting requests")
        with self._gate.locked():
            self._gate.deadline.end()
            self._gate.fail_trial()
            self._gate.refuse()

    def _taken(self) -> tuple[OnExpiry, int]:
        """Return the fallback in one process only; with refuse, reject requests at once."""
        gate = self._gate
        with gate.locked():
            way = gate.deadline.take()
            if way is OnExpiry.OPEN and not gate.is_proved:
                way = OnExpiry.REFUSE
            if way is OnExpiry.REFUSE:
                gate.fail_trial()
                gate.refuse()
            return way, gate.deadline.turn

    async def _is_resumed(self, scope: Scope) -> bool:
        try:
            async with asyncio.timeout(_RESUME_S):
                return await self._asked(scope, "/resume")
        except TimeoutError:
            return False

    async def _asked(self, scope: Scope, path: str, query: bytes = b"") -> bool:
        try:
            return await status_of(self._app, scope, "POST", path, query) < FAILED
        except Exception:  # noqa: BLE001 - any error means that the engine did not do it
            _log.exception("Failed to call the engine", extra={"path": path})
            return False
