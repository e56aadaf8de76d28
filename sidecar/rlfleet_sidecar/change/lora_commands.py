"""Carries out commands about adapters: never beside a change of weights, one at a time.

Only whoever has paused a worker may load one within that pause.
An adapter is waited for, checked and copied while all goes on. Only the engine's part
takes the place of a command about weights, which is refused as busy meanwhile.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from rlfleet_contract.single_flight import SingleFlight
from rlfleet_contract.worker.lora import LoadAdapterRequest, UnloadAdapterRequest
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import WorkerReport
from rlfleet_sidecar.change.executor import Executor
from rlfleet_sidecar.change.single_flight import FlightKey
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.lora.rules import demand_inherited, demand_name, demand_rest
from rlfleet_sidecar.lora.serving import Adapters
from rlfleet_sidecar.state.journal import Journal

LoRARequest = LoadAdapterRequest | UnloadAdapterRequest
_PASSING = frozenset({Code.BUSY, Code.ENGINE_UNREACHABLE, Code.ENGINE_IN_DOUBT})
"""Of the moment, and no fault of the adapter's."""
_log = logging.getLogger(__name__)


class LoRACommands:
    """Carries out commands about adapters, one at a time and to the end."""

    def __init__(
        self, model: str, executor: Executor, adapters: Adapters, journal: Journal
    ) -> None:
        self._model = model
        """The name under which the engine serves the model."""
        self._executor = executor
        self._adapters = adapters
        self._journal = journal
        self._turn = asyncio.Lock()
        self._under_way = SingleFlight[object]()

    async def carry_out(self, request: LoRARequest) -> WorkerReport:
        """Carry a command out and tell how the worker stands then."""
        # Under a key of its own: a repeat waits for its turn and finds it done.
        return await self._under_way.join(object(), lambda: self._in_turn(request))

    async def landed(self) -> None:
        """Wait until no command about adapters is under way."""
        await self._under_way.landed()

    async def _in_turn(self, request: LoRARequest) -> WorkerReport:
        async with self._turn:
            self._adapters.begin(request)
            try:
                await self._carried_out(request)
            except SidecarError as error:
                self._note(request, error)
                raise
            except Exception as error:
                _log.exception("A command about an adapter failed for a reason of our own")
                raise SidecarError(
                    Code.INTERNAL, f"{type(error).__name__} in the sidecar: see its log"
                ) from error
            finally:
                self._adapters.end()
        return self._executor.report()

    async def _carried_out(self, request: LoRARequest) -> None:
        is_declared = isinstance(request, LoadAdapterRequest) and request.is_declared
        demand_name(request.name, self._model, is_declared=is_declared)
        self._demand_rest(request)
        if isinstance(request, UnloadAdapterRequest):
            await self._alone(request, lambda boot: self._adapters.unload(boot, request))
            return
        if request.inherited is not None and self._adapters.is_taken(request.name):
            # Its trainer knows this worker by now, and was first.
            return
        copy = await self._adapters.copied(request)
        demand_inherited(copy.digest, request.inherited)
        await self._alone(request, lambda boot: self._adapters.load(boot, request, copy))

    async def _alone(
        self, request: LoRARequest, work: Callable[[str], Coroutine[Any, Any, None]]
    ) -> None:
        """Do the engine's part with no command about weights beside it."""

        async def worked() -> WorkerReport:
            self._demand_rest(request)
            boot = self._journal.state.boot
            if boot is None:
                raise SidecarError(Code.ENGINE_UNREACHABLE, "no start of the engine was seen")
            await work(boot)
            return self._executor.report()

        key = FlightKey(
            f"a command about adapter {request.name}", request.operation, request.version
        )
        await self._executor.flight.join(key, worked)

    def _demand_rest(self, request: LoRARequest) -> None:
        lead = self._journal.lead
        is_leader = lead is not None and lead.operation == request.operation
        demand_rest(self._journal.state.stage, is_leader=is_leader)

    def _note(self, request: LoRARequest, error: SidecarError) -> None:
        error.operation, error.version = request.operation, request.version
        if error.code not in _PASSING:
            self._adapters.failed(request, error)
