"""Does the gate's fallback when its deadline has passed: there is no sidecar to end the change.

Open: the engine is resumed, then the gate opens over what was proved last. Refuse: requests at
the gate are turned away, those within the engine end with the marker of an abort. It must stay
true that nothing is opened that was not proved, or that a sidecar has moved since.

A core that dies in a change ends it before: vLLM's server stops listening, so that no sidecar
reaches the gate, and ends only when every request is answered, those at the gate too.
"""

import asyncio

from rlfleet_engine import json_logs
from rlfleet_engine.asgi import Scope
from rlfleet_engine.gate.deadline import Way
from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.gate.held_request import Application
from rlfleet_engine.gate.inner_client import FAILED, is_healthy, status_of

_LOOK_S = 0.25
"""Another process may have ended the deadline, or put it off."""
_RESUME_S = 10.0
_HEALTH_S = 1.0
_log = json_logs.logger(__name__)


class Alone:
    """Watches the deadline in the process that a sidecar gave it to."""

    def __init__(self, app: Application, gate: Gate) -> None:
        self._app = app
        self._gate = gate
        self._watching: asyncio.Task[None] | None = None

    def watch(self, scope: Scope) -> None:
        """See that the deadline is watched; ``scope`` is of the request that brought it."""
        if self._gate.deadline.rest_s is None:
            return
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch(scope))

    async def _watch(self, scope: Scope) -> None:
        while (rest_s := self._gate.deadline.rest_s) is not None:
            if await self._has_died(scope):
                self._give_up()
            elif rest_s > 0:
                await asyncio.sleep(min(rest_s, _LOOK_S))
            else:
                await self._act(scope)

    async def _act(self, scope: Scope) -> None:
        way, turn = self._taken()
        _log.warning("The sidecar is silent: the gate ends its change", extra={"how": way.name})
        if way is Way.OPEN:
            is_running = await self._is_resumed(scope)
            with self._gate.locked():
                if self._gate.deadline.turn != turn:
                    return
                if is_running and self._gate.is_proved:
                    self._gate.open()
                else:
                    self._gate.refuse()
        elif way is Way.REFUSE:
            # It waits for a reload that is under way, and may last as long as that.
            await self._asked(scope, "/pause", b"mode=abort&clear_cache=true")

    async def _has_died(self, scope: Scope) -> bool:
        """Tell whether vLLM says that its core is dead; one that hangs may come back."""
        try:
            async with asyncio.timeout(_HEALTH_S):
                return not await is_healthy(self._app, scope)
        except Exception:  # noqa: BLE001 - nothing was said of the core
            return False

    def _give_up(self) -> None:
        """Turn away those who wait: this start of the engine answers nothing more."""
        _log.warning("The engine's core has died in a change: requests are turned away")
        with self._gate.locked():
            self._gate.deadline.end()
            self._gate.fail_trial()
            self._gate.refuse()

    def _taken(self) -> tuple[Way, int]:
        """Take the fallback, in one process; those at the gate are turned away at once."""
        gate = self._gate
        with gate.locked():
            way = gate.deadline.take()
            if way is Way.OPEN and not gate.is_proved:
                way = Way.REFUSE
            if way is Way.REFUSE:
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
        except Exception:  # noqa: BLE001 - whatever it is, the engine did not do it
            _log.exception("The engine failed where its sidecar is silent")
            return False
