"""Carries out commands for adapters: one at a time, and never during a change of weights.

Only the caller that has paused a worker may load one during that pause. Waiting, check and
copy run at any time. Only the engine's part excludes commands for weights, which get Busy
during it.
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
from rlfleet_sidecar.errors import SidecarError, internal
from rlfleet_sidecar.lora.rules import demand_inherited, demand_name, demand_rest
from rlfleet_sidecar.lora.serving import LoRAServing
from rlfleet_sidecar.state.journal import Journal

LoRARequest = LoadAdapterRequest | UnloadAdapterRequest
_PASSING = frozenset({Code.BUSY, Code.ENGINE_UNREACHABLE, Code.ENGINE_IN_DOUBT})
"""Temporary problems, not caused by the adapter."""
_log = logging.getLogger(__name__)


class LoRACommands:
    """Carries out commands for adapters, one at a time and to the end."""

    def __init__(
        self, model: str, executor: Executor, adapters: LoRAServing, journal: Journal
    ) -> None:
        self._model = model
        """The name under which the engine serves the model."""
        self._executor = executor
        self._adapters = adapters
        self._journal = journal
        self._turn = asyncio.Lock()
        self._under_way = SingleFlight[object]()

    async def carry_out(self, request: LoRARequest) -> WorkerReport:
        """Carry out a command; returns the worker's report."""
        # A key of its own for each, so that a repeat waits for its turn and finds it done.
        return await self._under_way.join(object(), lambda: self._in_turn(request))

    async def landed(self) -> None:
        """Wait until no command for adapters is under way."""
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
                _log.exception("Adapter command failed by an internal error")
                raise internal(error) from error
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
            # Its trainer has already loaded one here.
            return
        copy = await self._adapters.copied(request)
        demand_inherited(copy.digest, request.inherited)
        await self._alone(request, lambda boot: self._adapters.load(boot, request, copy))

    async def _alone(
        self, request: LoRARequest, work: Callable[[str], Coroutine[Any, Any, None]]
    ) -> None:
        """Run the engine's part while no command for weights is under way."""

        async def worked() -> WorkerReport:
            self._demand_rest(request)
            boot = self._journal.state.boot
            if boot is None:
                raise SidecarError(
                    Code.ENGINE_UNREACHABLE, "the engine has not answered yet; retry when it is up"
                )
            await work(boot)
            return self._executor.report()

        key = FlightKey(f"a command for adapter {request.name}", request.operation, request.version)
        await self._executor.flight.join(key, worked)

    def _demand_rest(self, request: LoRARequest) -> None:
        lead = self._journal.lead
        is_leader = lead is not None and lead.operation == request.operation
        demand_rest(self._journal.state.stage, is_leader=is_leader)

    def _note(self, request: LoRARequest, error: SidecarError) -> None:
        error.operation, error.version = request.operation, request.version
        if error.code not in _PASSING:
            self._adapters.failed(request, error)
