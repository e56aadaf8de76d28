"""The ASGI middleware that makes weight changes safe: guard, gate and version headers.

Guard: the network reaches only data routes, and no websocket opens. Gate: while it is closed,
requests that read the model wait, except the sidecar's probe. Each reply names its version.
With an open gate a request must cost no task and no lock. Its body must be read only if the
shaper needs it, and a request that waits must lose no byte.

An optional shaper rewrites requests. It is no ASGI middleware of its own: outside of this one it
would read bodies and call vLLM before the gate lets the request pass, and inside it could not
send the request back. If the gate closes while the shaper works, the request leaves the count of
requests in flight and waits. When it passes, salt, version check and reply use the version of
that moment; it is not rewritten again.
"""

import os
from collections.abc import Callable
from contextlib import nullcontext

from rlfleet_contract import paths
from rlfleet_engine.asgi import Scope, Send, answer, error_of, refuse, refuse_websocket
from rlfleet_engine.control import Control, end_process
from rlfleet_engine.gate.gate import Gate, ProofState
from rlfleet_engine.gate.held_request import Application, HeldRequest, Receive, TooLargeError
from rlfleet_engine.gate.liveness import Liveness
from rlfleet_engine.gate.network_guard import Route, computes_nothing, is_local, route_of
from rlfleet_engine.gate.shaper import Shaped, Shaper
from rlfleet_engine.reply import stored_responses
from rlfleet_engine.reply.cors import with_cors
from rlfleet_engine.reply.reply import Reply, malformed, turned_away, unmet, with_version
from rlfleet_engine.reply.version_demand import DemandError, DemandVerdict, VersionDemand, demand_of
from rlfleet_engine.settings import EngineSettings

_PROBE = paths.PROBE_HEADER.encode()
_AUTHORIZATION = b"authorization"
_PREFLIGHT = "OPTIONS"
"""A browser's CORS preflight, which vLLM answers from its settings."""


class Safety:
    """A pure ASGI middleware that works with or without a shaper."""

    def __init__(
        self,
        app: Application,
        gate: Gate | None = None,
        end: Callable[[], None] = end_process,
        max_body_bytes: int | None = None,
        shaper: Shaper | None = None,
    ) -> None:
        self._app = app
        settings = EngineSettings.load(os.environ)  # noqa: TID251 - the one reader
        self._gate = gate or Gate(settings.gate_file, settings.boot)
        self._max_body_bytes = max_body_bytes or settings.max_body_bytes
        self._api_key = settings.api_key
        self._shaper = shaper or Shaper(app)
        self._control = Control(app, self._gate, end)
        self._liveness = Liveness(app, self._gate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, hold, pass or reject one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await refuse_websocket(scope, send)
            return
        send = with_cors(self._app, scope, send)
        try:
            await self._answer(scope, receive, send)
        except TooLargeError as error:
            content = error_of(413, "RequestEntityTooLarge", str(error), "body")
            await answer(send, 413, content)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        route = route_of(raw_path, scope.get("root_path", ""))
        if route is Route.CONTROL:
            if _is_local(scope):
                await self._control.answer(scope, receive, send)
            else:
                await refuse(send)
        elif route is Route.LIVENESS:
            await self._liveness.respond(scope, with_version(send, self._gate))
        elif route is Route.ALWAYS or scope["method"] == _PREFLIGHT:
            await self._app(self._admitted(scope), receive, with_version(send, self._gate))
        elif stored_responses.is_stored(scope["path"]):
            await stored_responses.unreadable(send)
        elif _is_probe(scope):
            await self._app(self._admitted(scope), receive, send)
        else:
            await self._serve(scope, receive, send)

    def _admitted(self, scope: Scope) -> Scope:
        """Add vLLM's API key to the sidecar's own requests.

        vLLM checks the key behind this middleware, and the sidecar does not know it.
        """
        if self._api_key is None or not _is_probe(scope):
            return scope
        others = [header for header in scope["headers"] if header[0] != _AUTHORIZATION]
        key = f"Bearer {self._api_key}".encode()
        return {**scope, "headers": [*others, (_AUTHORIZATION, key)]}

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            demand = demand_of(scope["headers"])
        except DemandError as error:
            await malformed(send, error)
            return
        must_read, computes = self._shaper.must_read(scope), not computes_nothing(scope["path"])
        if self._gate.is_open and computes and not must_read:
            with self._gate.passing():
                await self._pass(self._app, scope, receive, send, demand)
            return
        held = HeldRequest(receive)
        shaped = None if must_read else Shaped(self._app, scope)
        try:
            await self._hold(scope, held, send, demand, shaped, computes=computes)
        finally:
            held.close()

    async def _hold(
        self,
        scope: Scope,
        held: HeldRequest,
        send: Send,
        demand: VersionDemand | None,
        shaped: Shaped | None,
        *,
        computes: bool,
    ) -> None:
        """Pass a request once the gate is open; one that reads no weights passes at once.

        One without a demand also passes during a trial that admits it, and again if that fails.
        """
        gate, limit, may_try = self._gate, self._max_body_bytes, computes and demand is None
        while not computes or gate.is_open or await held.until_open(gate, limit, on_trial=may_try):
            if gate.is_refusing:
                await turned_away(send)
                return
            # A change waits only for requests that compute, and others never end under load.
            with gate.passing() if computes else nullcontext():
                shaped = shaped or await self._shaper.shaped(scope, await held.body(limit))
                # The gate may have closed while the body arrived or was rewritten.
                if gate.is_open or not computes:
                    scope = shaped.scope_into(held, gate)
                    await self._pass(
                        shaped.app, scope, held.receive, send, demand, computes=computes
                    )
                    return
                if may_try and await self._is_answered_on_trial(held, send, shaped):
                    return

    async def _is_answered_on_trial(self, held: HeldRequest, send: Send, shaped: Shaped) -> bool:
        """Pass a request during a trial that admits it; False leaves the request as it was."""
        body = await held.body(self._max_body_bytes)
        if not self._gate.is_admitting:
            return False
        scope = shaped.scope_into(held, self._gate)
        is_void = await self._pass(shaped.app, scope, held.receive, send, None, on_trial=True)
        if is_void:
            held.replace(body)
        return not is_void

    async def _pass(
        self,
        app: Application,
        scope: Scope,
        receive: Receive,
        send: Send,
        demand: VersionDemand | None,
        *,
        computes: bool = True,
        on_trial: bool = False,
    ) -> bool:
        """Have vLLM answer; True if nothing was sent, because the trial failed."""
        if not self._gate.has_unsalted and self._shaper.is_unsalted(scope):
            # Before vLLM gets it, so that no change keeps the caches by then.
            self._gate.mark_unsalted()
        holding = self._gate.holding if computes else self._gate.known
        if demand and demand.verdict(holding.version.decode()) is not DemandVerdict.MET:
            await unmet(send, demand, holding)
            return False
        reply = Reply(send, self._gate, holding, demand, computes=computes, on_trial=on_trial)
        try:
            await app(scope, receive, reply)
        except Exception:
            # Outside of this middleware the server would answer at once, without a proof.
            if not on_trial or reply.has_begun:
                raise
            if await self._gate.settled(holding.change) is not ProofState.FAILED:
                raise
            return True
        return reply.is_void


def _is_probe(scope: Scope) -> bool:
    """Return whether a request is the sidecar's; the header counts only from inside the pod."""
    return _PROBE in dict(scope["headers"]) and _is_local(scope)


def _is_local(scope: Scope) -> bool:
    return is_local(scope.get("client"), scope.get("server"), scope["headers"])
