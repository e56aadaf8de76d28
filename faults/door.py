"""ASGI middleware before a fake engine: reports its sidecar's steps and injects faults there."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from faults.ledger import Ledger
from faults.plan import Side
from rlfleet_contract import paths
from rlfleet_engine.asgi import Scope, Send
from rlfleet_engine.gate.held_request import Receive

Application = Callable[[Scope, Receive, Send], Awaitable[None]]
_HANGS_S = 60.0
_STEPS = {
    "/pause": "pause",
    "/reset_prefix_cache": "flush",
    "/is_paused": "is_paused",
    "/resume": "resume",
}
_OF_GATE = frozenset({"open", "close", "try"})
_RPCS = {paths.RELOAD_RPC: "reload", paths.READ_BACK_RPC: "read", paths.RELOADED_RPC: "read"}


class Struck(Protocol):
    """What can be killed at a step, and how often it was loaded."""

    reloads: int

    async def lose_sidecar(self) -> None:
        """End the sidecar by SIGKILL."""

    async def lose_engine(self) -> None:
        """End the engine."""


class Door:
    """An ASGI application around the engine's own."""

    def __init__(
        self,
        inner: Application,
        name: str,
        ledger: Ledger,
        crash: Callable[[], Awaitable[None]],
        breaking: str,
    ) -> None:
        """``crash`` kills the operator; the engine cannot load a version named ``breaking``."""
        self._breaking = breaking
        self._inner, self._name, self._ledger, self._crash = inner, name, ledger, crash
        self._last = ""
        self._is_open = False
        """Whether the gate was opened last, as its sidecar asked."""
        self.worker: Struck

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, unless a fault strikes it."""
        body, receive = await _whole(receive)
        step = _step_of(scope, body)
        mode = self._reported(step)
        self.worker.reloads += step == "reload"
        if not mode and step == "reload" and self._breaks_at(body):
            await _error(send)
        elif not mode:
            await self._inner(scope, receive, send)
        elif mode in {"engine-500", "engine-fails"}:
            await _error(send)
        elif mode == "engine-hangs":
            await asyncio.sleep(_HANGS_S)
        elif mode.endswith("-after"):
            # The engine does it, but the sidecar gets no answer.
            await self._inner(scope, receive, _unheard)
            await self._strike(mode)
        else:
            await self._strike(mode)
            if mode == "operator-kill":
                await self._inner(scope, receive, send)

    def _breaks_at(self, body: bytes) -> bool:
        """Return whether a reload is of the version that breaks engines, staged or not."""
        return self._breaking in json.loads(body)["kwargs"]["directory"].split("/")

    def _reported(self, step: str) -> str | None:
        """Report a step to the ledger and return its fault; a probe of many requests is one step.

        The poll of an open engine (/is_paused) belongs to no change and is left out.
        """
        if step in _OF_GATE:
            self._is_open = step == "open"
        if step == "is_paused" and self._is_open:
            return None
        is_more_of_it = step == self._last
        self._last = step or self._last
        if not step or is_more_of_it:
            return None
        return self._ledger.strikes(Side.ENGINE, f"{step} {self._name}")

    async def _strike(self, mode: str) -> None:
        if mode.startswith("sidecar"):
            await self.worker.lose_sidecar()
        elif mode.startswith("engine"):
            await self.worker.lose_engine()
        else:
            await self._crash()


def _step_of(scope: Scope, body: bytes) -> str:
    """Name the step; empty for what is no step of a change."""
    path, method = scope.get("path", ""), scope.get("method", "")
    if path == paths.GATE_PATH and method == "POST":
        return str(json.loads(body)["action"])
    if any(name == paths.PROBE_HEADER.encode() for name, _ in scope.get("headers", ())):
        return "probe"
    if path == "/collective_rpc":
        return _RPCS[json.loads(body)["method"]]
    return _STEPS.get(path, "")


async def _whole(receive: Receive) -> tuple[bytes, Receive]:
    """Read the body, and give it out again."""
    first = await receive()
    body = first.get("body", b"")
    while first.get("more_body"):
        first = await receive()
        body += first.get("body", b"")
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Any:
        return left.pop() if left else await receive()

    return body, again


async def _unheard(_message: Any) -> None:
    return


async def _error(send: Send) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 500, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"error": "injected fault"}'})
