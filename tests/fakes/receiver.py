"""vLLM's weight transfer, with a trainer that need not be there."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlfleet_engine.asgi import Send
from tests.fakes.asgi import send_json
from tests.fakes.memory import SPOILT, consume, stamps_of

if TYPE_CHECKING:
    from tests.fakes.engine import FakeEngine


class Receiver:
    """vLLM's weight transfer, with a trainer that need not be there.

    It answers in the words of vLLM 0.32: what goes wrong in a worker is a 500 and the engine
    lives on, an update that fails is no longer active and leaves layers half loaded.
    """

    def __init__(self, engine: "FakeEngine") -> None:
        self._engine = engine
        self.arriving: Path | None = None
        """The checkpoint whose tensors the trainer sends; None: those that are held."""
        self.calls: list[str] = []
        self._is_grouped = self._is_active = False
        self.routes: dict[str, Callable[[dict[str, Any]], Awaitable[str]]] = {
            "/init_weight_transfer_engine": self._init,
            "/shutdown_weight_transfer_engine": self._shutdown,
            "/start_weight_update": self._start,
            "/update_weights": self._update,
            "/finish_weight_update": self._finish,
        }

    async def _init(self, body: dict[str, Any]) -> str:
        self.calls.append("init")
        if "master_address" not in body["init_info"]:
            raise WorkerError("Invalid init_info for NCCLWeightTransferEngine")
        await asyncio.sleep(self._engine.behaviour.group_s)
        if self._engine.behaviour.group_fails:
            raise WorkerError("No CUDA GPUs are available")
        self._is_grouped = True
        return "Weight transfer initialized"

    async def _shutdown(self, _body: dict[str, Any]) -> str:
        self.calls.append("shutdown")
        self._is_grouped = False
        return "Weight transfer shut down"

    async def _start(self, _body: dict[str, Any]) -> str:
        self.calls.append("start")
        if self._is_active:
            raise WorkerError(
                "start_weight_update called while a weight update is already active."
                " Call finish_weight_update first."
            )
        self._is_active = True
        return "Weight update started"

    async def _update(self, body: dict[str, Any]) -> str:
        self.calls.append("update")
        assert "update_info" in body
        if not self._is_active:
            raise WorkerError("start_weight_update must be called before update_weights.")
        if not self._is_grouped:
            self._is_active = False
            raise WorkerError("NCCL weight transfer not initialized.")
        await asyncio.sleep(self._engine.behaviour.receive_s)
        if self._engine.behaviour.receive_fails:
            self._is_active = False
            self._engine.weights = SPOILT
            raise WorkerError("NCCL error: unhandled system error")
        if self.arriving is not None:
            self._engine.weights = consume(str(self.arriving), stamps_of(self.arriving)).weights
        return "Weights updated"

    async def _finish(self, _body: dict[str, Any]) -> str:
        self.calls.append("finish")
        if not self._is_active:
            raise WorkerError("finish_weight_update called without a matching start_weight_update.")
        self._is_active = False
        return "Weight update finished"


class WorkerError(Exception):
    """What a worker of the engine raises, as the API server words it."""


async def transferred(
    act: Callable[[dict[str, Any]], Awaitable[str]], body: dict[str, Any], send: Send
) -> None:
    """Answer a call of a transfer in vLLM's words."""
    try:
        await send_json(send, 200, {"message": await act(body)})
    except WorkerError as error:
        told = f"Call to collective_rpc method failed: Worker failed with error '{error}'"
        await send_json(send, 500, {"error": {"message": told, "code": 500}})
