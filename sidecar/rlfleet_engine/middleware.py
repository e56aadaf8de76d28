"""The guard and the gate in front of vLLM's routes, and what is told to samplers.

Named to vLLM by ``--middleware rlfleet_engine.middleware.Extension``. The guard: the
network reaches the data routes and nothing else, and no websocket is opened. The gate:
while it is closed, a request that reads the model waits, except the sidecar's own probe;
one that reads no weights does not.
It must stay true that a request which finds the gate open pays for no task and no lock,
that its body is copied only if a salt or its shape has to be changed, and that one which
waits loses no byte.
"""

import asyncio
import os
from collections.abc import Callable, Mapping

from pydantic import ValidationError

from rlfleet_contract import paths
from rlfleet_contract.gate import GateCommand, GateState
from rlfleet_engine.asgi import Scope, Send, answer, compact, error_of, refuse, refuse_websocket
from rlfleet_engine.gate.commands import obey
from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.gate.held_request import Application, Held, Receive, TooLargeError
from rlfleet_engine.gate.liveness import Liveness
from rlfleet_engine.gate.lone_gate import Alone
from rlfleet_engine.gate.network_guard import Route, is_local, route_of
from rlfleet_engine.reply.cors import with_cors
from rlfleet_engine.reply.reply import Reply, malformed, telling, turned_away, unmet
from rlfleet_engine.reply.version_demand import Demand, DemandError, DemandVerdict, demand_of
from rlfleet_engine.rewrite import cache_salt
from rlfleet_engine.rewrite.rewrite import Turn
from rlfleet_engine.rewrite.rewritten import Rewritten
from rlfleet_engine.rewrite.shapes import responses
from rlfleet_engine.rewrite.shapes.routes import TURNS, turn_of
from rlfleet_engine.settings import EngineSettings
from rlfleet_engine.vllm import lora

_PROBE = paths.PROBE_HEADER.encode()
_AUTHORIZATION = b"authorization"
_PREFLIGHT = "OPTIONS"
"""A browser's question before its request: vLLM answers it from its settings."""
_MAX_COMMAND_BYTES = 4096
_ANSWER_S = 0.05
"""How long an answer gets to leave before the process ends."""
_ENDED_ON_DEMAND = 70


def _end_process() -> None:
    """End the engine: vLLM's other processes follow this one, whichever it is."""
    os._exit(_ENDED_ON_DEMAND)


class Extension:
    """A plain ASGI middleware; vLLM makes one in each API server process."""

    def __init__(
        self,
        app: Application,
        gate: Gate | None = None,
        end: Callable[[], None] = _end_process,
        max_body_bytes: int | None = None,
        turns: Mapping[str, Turn] = TURNS,
    ) -> None:
        self._app = app
        settings = EngineSettings.load()
        self._gate = gate or Gate(settings.gate_file, settings.boot)
        self._end = end
        self._max_body_bytes = max_body_bytes or settings.max_body_bytes
        self._api_key = settings.api_key
        self._turns = turns
        self._liveness = Liveness(app, self._gate)
        self._alone = Alone(app, self._gate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, hold, pass or refuse one request."""
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
            await _too_large(send, error)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        route = route_of(raw_path, scope.get("root_path", ""))
        if route is Route.CONTROL:
            await self._control(scope, receive, send)
        elif route is Route.LIVENESS:
            await self._liveness.tell(scope, telling(send, self._gate))
        elif route is Route.ALWAYS or scope["method"] == _PREFLIGHT:
            await self._app(self._admitted(scope), receive, telling(send, self._gate))
        elif responses.is_stored(scope["path"]):
            await responses.unreadable(send)
        elif _is_probe(scope):
            await self._app(self._admitted(scope), receive, send)
        else:
            await self._serve(scope, receive, send)

    def _admitted(self, scope: Scope) -> Scope:
        """Return a request of the sidecar with the key that vLLM asks for; another's as it is.

        vLLM's own check of keys stands behind this middleware, and the sidecar knows no key.
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
        if cache_salt.computes_nothing(scope):
            await self._at_once(scope, Held(receive), send, demand)
            return
        has_to_be_read = turn_of(scope, self._turns) is not None or cache_salt.may_have_salt(scope)
        if self._gate.is_open and not has_to_be_read:
            with self._gate.passing():
                self._note_unsalted(scope)
                await self._pass(self._app, scope, receive, send, demand)
            return
        held = Held(receive)
        asked = None if has_to_be_read else Rewritten(self._app, scope)
        try:
            await self._hold(scope, held, send, demand, asked)
        finally:
            held.close()

    async def _at_once(self, scope: Scope, held: Held, send: Send, demand: Demand | None) -> None:
        """Answer what reads no weights, though they change: there is nothing to wait for."""
        if self._gate.is_refusing:
            await turned_away(send)
            return
        asked, turn = Rewritten(self._app, scope), turn_of(scope, self._turns)
        with self._gate.passing():
            if turn is not None:
                body = await held.body(self._max_body_bytes)
                asked = await Rewritten.instead(self._app, scope, body, turn)
                scope = asked.scope_into(held, self._gate)
            await self._pass(asked.app, scope, held.receive, send, demand, computes=False)

    async def _hold(
        self, scope: Scope, held: Held, send: Send, demand: Demand | None, asked: Rewritten | None
    ) -> None:
        limit = self._max_body_bytes
        while self._gate.is_open or await held.until_open(self._gate, limit):
            if self._gate.is_refusing:
                await turned_away(send)
                return
            with self._gate.passing():
                if asked is None:
                    turn = turn_of(scope, self._turns)
                    asked = await Rewritten.instead(self._app, scope, await held.body(limit), turn)
                # The gate may have been closed while the body came, or was turned.
                if self._gate.is_open:
                    scope = asked.scope_into(held, self._gate)
                    self._note_unsalted(scope)
                    await self._pass(asked.app, scope, held.receive, send, demand)
                    return

    def _note_unsalted(self, scope: Scope) -> None:
        """Remember a request that no salt separates, before vLLM has it."""
        if not self._gate.has_unsalted and cache_salt.is_unsalted(scope):
            self._gate.mark_unsalted()

    async def _pass(
        self,
        app: Application,
        scope: Scope,
        receive: Receive,
        send: Send,
        demand: Demand | None,
        *,
        computes: bool = True,
    ) -> None:
        holding = self._gate.holding if computes else self._gate.known
        if demand and demand.verdict(holding.version.decode()) is not DemandVerdict.MET:
            await unmet(send, demand, holding)
        else:
            reply = Reply(send, self._gate, holding, demand, computes=computes)
            await app(scope, receive, reply)

    async def _control(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _is_local(scope):
            await refuse(send)
            return
        match (scope["method"], scope["path"]):
            case ("GET", paths.GATE_PATH):
                await answer(send, 200, self._state())
            case ("POST", paths.GATE_PATH):
                await self._command(scope, receive, send)
            case ("GET" | "POST", paths.ENGINE_ADAPTERS_PATH):
                await answer(send, *await lora.answered(scope, receive, self._gate))
            case ("POST", paths.EXIT_PATH):
                await answer(send, 202, b"{}")
                await asyncio.sleep(_ANSWER_S)
                self._end()
            case _:
                await self._app(scope, receive, send)

    async def _command(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            command = GateCommand.model_validate_json(await Held(receive).body(_MAX_COMMAND_BYTES))
        except ValidationError as error:
            await answer(send, 400, error.json(include_url=False, include_input=False).encode())
            return
        if command.boot != self._gate.boot:
            await answer(send, 409, self._state())
            return
        with self._gate.locked():
            obey(self._gate, command)
        self._alone.watch(scope)
        await answer(send, 200, self._state())

    def _state(self) -> bytes:
        waiting, in_flight = self._gate.totals()
        gate = self._gate
        state = GateState(
            boot=gate.boot,
            is_open=gate.is_open,
            waiting=waiting,
            in_flight=in_flight,
            version=gate.holding.version.decode() or None,
            is_refusing=gate.is_refusing,
            is_draining=gate.is_draining,
            has_deadline=True,
            is_expired=gate.deadline.is_expired,
            has_unsalted=gate.has_unsalted,
        )
        return state.model_dump_json().encode()


def _is_probe(scope: Scope) -> bool:
    """Tell whether a request is the sidecar's own: its header counts from within the pod alone."""
    return _PROBE in dict(scope["headers"]) and _is_local(scope)


def _is_local(scope: Scope) -> bool:
    return is_local(scope.get("client"), scope.get("server"), scope["headers"])


async def _too_large(send: Send, error: TooLargeError) -> None:
    told = error_of(413, "RequestEntityTooLarge", str(error), "body")
    await answer(send, 413, compact(told))
