"""The sidecar's routes to move the gate, serve LoRA adapters and end the engine.

rlfleet_engine.safety passes only requests from inside the pod. A command for another boot of the
engine must change nothing.
"""

import asyncio
import os
from collections.abc import Callable

from pydantic import ValidationError

from rlfleet_contract import paths
from rlfleet_contract.engine.gate import GateCommand, GateState
from rlfleet_engine.asgi import Scope, Send, answer
from rlfleet_engine.gate import mortal_call
from rlfleet_engine.gate.commands import apply
from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.gate.held_request import Application, HeldRequest, Message, Receive
from rlfleet_engine.gate.lone_gate import LoneGate
from rlfleet_engine.vllm import lora, pause

_LOAD = paths.LOAD_HEADER.encode()
_MAX_COMMAND_BYTES = 4096
_ANSWER_S = 0.05
"""Time to send the reply before the process exits."""
_ENDED_ON_DEMAND = 70
_DIED = b'{"error":"the engine core died during the call"}'


def end_process() -> None:
    """End the engine: vLLM's other processes exit when any API server process does."""
    os._exit(_ENDED_ON_DEMAND)


class Control:
    """Serves rlfleet's control routes and passes all others to vLLM."""

    def __init__(self, app: Application, gate: Gate, end: Callable[[], None]) -> None:
        self._app = app
        self._gate = gate
        self._end = end
        self._alone = LoneGate(app, gate)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request from inside the pod."""
        match (scope["method"], scope["path"]):
            case ("GET", paths.GATE_PATH):
                await answer(send, 200, self._state())
            case ("POST", paths.GATE_PATH):
                await self._command(scope, receive, send)
            case ("POST", paths.EXIT_PATH):
                await answer(send, 202, b"{}")
                await asyncio.sleep(_ANSWER_S)
                self._end()
            case _:
                await self._call(scope, receive, send)

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what needs the engine's core, with an error if that dies first."""
        begun = False

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        call = self._engine_answers(scope, receive, noting)
        if not await mortal_call.ends(self._app, scope, call) and not begun:
            await answer(send, 500, _DIED)

    async def _engine_answers(self, scope: Scope, receive: Receive, send: Send) -> None:
        done = None
        if any(name == _LOAD for name, _ in scope["headers"]):
            self._gate.count_load()
        match (scope["method"], scope["path"]):
            case ("GET" | "POST", paths.ENGINE_ADAPTERS_PATH):
                done = await lora.answered(scope, receive, self._gate)
            case ("POST", "/pause"):
                done = await pause.paused(scope)
        if done is None:
            await self._app(scope, receive, send)
        else:
            await answer(send, *done)

    async def _command(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            command = GateCommand.model_validate_json(
                await HeldRequest(receive).body(_MAX_COMMAND_BYTES)
            )
        except ValidationError as error:
            await answer(send, 400, error.json(include_url=False, include_input=False).encode())
            return
        if command.boot != self._gate.boot:
            await answer(send, 409, self._state())
            return
        with self._gate.locked():
            apply(self._gate, command)
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
            loads=gate.loads,
        )
        return state.model_dump_json().encode()
