"""Transfers: weights that a trainer sends into vLLM's transfer engine, in several calls.

There is no checkpoint, so nothing can be checked before the load; only the engine's answers
afterwards show what arrived. It must stay true that from the begin of an update to its proof a
worker is Loading, Loaded or in Doubt, that any failure from the begin on leads to Doubt, and
that a group which does not form changes nothing.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

from rlfleet_contract.paths import BASE_VERSION
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import WorkerReport
from rlfleet_sidecar.change.executor import Executor
from rlfleet_sidecar.change.single_flight import FlightKey
from rlfleet_sidecar.change.steps import Steps
from rlfleet_sidecar.change.ttl import ChangeTTL
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.proof.selftest import demand_reloadable
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.state.journal import Journal
from rlfleet_sidecar.state.sent_weights import (
    demand_groupable,
    demand_grouped,
    demand_sent,
    demand_startable,
    demand_started,
)
from rlfleet_sidecar.state.stage_machine import StageEvent
from rlfleet_sidecar.timeouts import within
from rlfleet_sidecar.vllm_client import EngineClient

DISABLED = (
    "in-memory weight transfer is experimental and off; set spec.sidecar.experimentalTransfer to"
    " true, or write checkpoints"
)
_LOOK_S = 4.0
_INIT, _START = "/init_weight_transfer_engine", "/start_weight_update"
_UPDATE, _FINISH = "/update_weights", "/finish_weight_update"
_SHUTDOWN = "/shutdown_weight_transfer_engine"
Info = dict[str, Any] | list[dict[str, Any]]


class _Part(NamedTuple):
    """One call of a transfer."""

    path: str
    about: str
    """Two calls of this path with the same value are repeats."""
    demand: Callable[[], None]
    """Raises if the call is not allowed now."""
    work: Callable[[], Awaitable[None]]


class Transfer:
    """Forwards each call to the engine, as a command of its trainer's change."""

    def __init__(
        self,
        settings: SidecarSettings,
        engine: EngineClient,
        steps: Steps,
        journal: Journal,
        executor: Executor,
        leadership: ChangeTTL,
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._steps = steps
        self._journal = journal
        self._executor = executor
        self._leadership = leadership
        self._session: tuple[str | None, str] | None = None
        """Boot and operation of the update under way."""
        self._parts = 0
        """How many of its parts have arrived."""

    async def init(self, operation: str, info: Mapping[str, Any]) -> None:
        """Form the group with the trainer; the worker's weights stay."""

        def demand() -> None:
            if not self._settings.experimental_transfer:
                raise SidecarError(Code.INVALID_REQUEST, DISABLED)
            demand_groupable(self._journal.state)

        async def work() -> None:
            await self._demand_sendable()
            boot = self._journal.state.boot
            self._journal.grouped(None)
            await self._ask(_INIT, {"init_info": dict(info)})
            self._journal.grouped(boot)

        await self._carry(operation, _Part(_INIT, _digest(info), demand, work))

    async def shutdown(self, operation: str) -> None:
        """Leave the group; the worker's weights stay."""

        def demand() -> None:
            demand_groupable(self._journal.state)

        async def work() -> None:
            self._journal.grouped(None)
            await self._ask(_SHUTDOWN, {})

        await self._carry(operation, _Part(_SHUTDOWN, "", demand, work))

    def demand_group(self) -> None:
        """Raise unless the engine is in a group with its trainer."""
        demand_grouped(self._journal.state, self._journal.record.group)

    async def start(self, operation: str) -> None:
        """Begin an update of the paused engine, whose weights are unknown from here on."""

        def demand() -> None:
            demand_startable(self._journal.state, self._journal.record.group)
            demand_reloadable(self._journal.record.self_test, "sent", BASE_VERSION)

        async def work() -> None:
            await self._steps.begin_load(operation, _LOOK_S, None)
            self._steps.forget_load()
            self._session, self._parts = (self._journal.state.boot, operation), 0
            await self._in_update(_START, {}, operation)

        await self._carry(operation, _Part(_START, "", demand, work))

    async def update(self, operation: str, info: Info) -> None:
        """Have the engine receive a part from its trainer."""

        async def work() -> None:
            await self._in_update(_UPDATE, {"update_info": info}, operation)
            self._parts += 1

        demand = partial(self._demand_started, operation)
        await self._carry(operation, _Part(_UPDATE, _digest(info), demand, work))

    async def finish(self, operation: str, version: str) -> None:
        """End the update, as ``version``, which still needs its proof."""

        def demand() -> None:
            self._demand_started(operation)
            demand_sent(self._parts)

        async def work() -> None:
            await self._in_update(_FINISH, {}, operation)
            self._session = None
            self._journal.move(StageEvent.RELOADED, version=version, operation=operation)

        await self._carry(operation, _Part(_FINISH, version, demand, work))

    def _demand_started(self, operation: str) -> None:
        state = self._journal.state
        demand_started(state, is_session=self._session == (state.boot, operation))

    async def _demand_sendable(self) -> None:
        """Raise for an engine that is known to keep old weights in a transfer."""
        async with within(Code.TRANSFER_FAILED, _LOOK_S):
            engine = await self._engine.describe(())
        if engine.unsendable is not None:
            raise SidecarError(
                Code.ENGINE_UNFAITHFUL,
                f"{engine.title} does not support weight transfer: {engine.unsendable}; write"
                " checkpoints",
            )

    async def _in_update(self, path: str, body: Mapping[str, Any], operation: str) -> None:
        try:
            async with within(
                Code.RELOAD_FAILED, self._settings.trainer_transfer_s, lost=Code.RELOAD_FAILED
            ):
                await self._engine.transfer(path, body, is_load=True)
        except BaseException:
            self._session = None
            self._journal.move(StageEvent.RELOAD_FAILED, operation=operation)
            raise

    async def _ask(self, path: str, body: Mapping[str, Any]) -> None:
        async with within(Code.TRANSFER_FAILED, self._settings.trainer_transfer_s):
            await self._engine.transfer(path, body, is_load=False)

    async def _carry(self, operation: str, part: _Part) -> None:
        """Run the call as the one command under way; a repeat joins it."""

        async def carried() -> WorkerReport:
            # Checked first, because a rejected call must not renew the TTL.
            part.demand()
            self._leadership.take(operation, None, self._settings.trainer_ttl_s)
            try:
                await part.work()
            except SidecarError as error:
                error.operation = operation
                self._journal.failed(error.problem())
                raise
            finally:
                self._leadership.renew()
            return self._executor.report()

        key = FlightKey(f"POST {part.path}", operation, part.about)
        await self._executor.flight.join(key, carried)


def _digest(info: object) -> str:
    return sha256(json.dumps(info, sort_keys=True).encode()).hexdigest()[:16]
