"""Whether the engine answers at all: /liveness, which vLLM does not have.

vLLM's /health is 200 on an engine that hangs. So while requests pass, the engine's core is
asked something cheap (whether it is paused), and it is dead when it has not answered for
long. While the gate is closed it may be paused or busy with a reload, for as long as that
takes and under the sidecar's own limits; then vLLM's word, that its processes live, is all
that is asked. Each probe is answered within a second, whatever the engine does.
"""

import asyncio
import time
from collections.abc import Callable

from rlfleet_engine.asgi import Scope, Send, answer, refuse
from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.gate.held_request import Application
from rlfleet_engine.gate.inner_client import FAILED, is_healthy, status_of

_ANSWER_S = 0.8
"""The kubelet's probes wait for one second if nobody says otherwise."""
_PATIENCE_S = 30.0
"""A step of the engine takes seconds at worst, and its core answers between two steps."""


class Liveness:
    """Asks vLLM by its own routes; at most one question is under way."""

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

    async def tell(self, scope: Scope, send: Send) -> None:
        """Answer a probe."""
        if scope["method"] not in {"GET", "HEAD"}:
            await refuse(send)
        elif await self.is_responsive(scope):
            await answer(send, 200, b'{"status":"ok"}')
        else:
            await answer(send, 503, b'{"status":"engine_unresponsive"}')

    async def is_responsive(self, scope: Scope) -> bool:
        """Tell whether the engine answers, or has not been silent for long."""
        if not self._gate.is_open:
            # What was asked before may wait for the end of the change.
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
    """Tell whether a question that has ended got an answer; asyncio logs what nobody looks at."""
    return not asked.cancelled() and asked.exception() is None and asked.result() < FAILED
