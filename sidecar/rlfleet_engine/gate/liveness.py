"""The route /liveness: whether the engine's core answers.

vLLM's /health is 200 for a core that hangs. So with an open gate this route calls the core
(/is_paused) and fails once the core has not answered for 30 s. With a closed gate the core may be
paused or reloading, which the sidecar limits; then only /health counts. Each probe is answered
within a second.
"""

import asyncio
import time
from collections.abc import Callable

from rlfleet_engine.asgi import Scope, Send, answer, refuse
from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.gate.held_request import Application
from rlfleet_engine.gate.inner_client import FAILED, is_healthy, status_of

_ANSWER_S = 0.8
"""Below the default timeout of the kubelet's probes, one second."""
_PATIENCE_S = 30.0
"""The core answers between two steps, and a step takes seconds at worst."""


class Liveness:
    """Checks the engine's core, with at most one call under way."""

    def __init__(
        self,
        app: Application,
        gate: Gate,
        clock: Callable[[], float] = time.monotonic,
        answer_s: float = _ANSWER_S,
    ) -> None:
        self._app = app
        self._gate = gate
        self._clock = clock
        self._answer_s = answer_s
        self._asked: asyncio.Task[int] | None = None
        self._since = 0.0

    async def respond(self, scope: Scope, send: Send) -> None:
        """Answer a probe with 200 or 503."""
        if scope["method"] not in {"GET", "HEAD"}:
            await refuse(send)
        elif await self.is_responsive(scope):
            await answer(send, 200, b'{"status":"ok"}')
        else:
            await answer(send, 503, b'{"status":"engine_unresponsive"}')

    async def is_responsive(self, scope: Scope) -> bool:
        """Return whether the core answers, or has been silent for less than 30 s."""
        if not self._gate.is_open:
            # An earlier call may wait for the end of the change.
            self._since = self._clock()
            return await is_healthy(self._app, scope)
        if self._asked is None or self._asked.done():
            self._asked = asyncio.create_task(status_of(self._app, scope, "GET", "/is_paused"))
            self._asked.add_done_callback(_is_answered)
            self._since = self._clock()
        asked = self._asked
        await asyncio.wait({asked}, timeout=self._answer_s)
        if not asked.done():
            return self._clock() - self._since < _PATIENCE_S
        return _is_answered(asked)


def _is_answered(asked: "asyncio.Task[int]") -> bool:
    """Return whether a call succeeded; reads its exception, because asyncio logs unread ones."""
    return not asked.cancelled() and asked.exception() is None and asked.result() < FAILED
