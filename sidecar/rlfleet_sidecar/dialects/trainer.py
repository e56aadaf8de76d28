"""Does what a trainer asks for, by the same commands as anybody without a fence.

It must stay true that nothing here touches gate, pause or weights but by a command
through the fencing, and that an update which did not end well is written down: the
resume which such trainers send in any case must find it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn
from uuid import uuid4

from rlfleet_contract.api import BASE_VERSION
from rlfleet_contract.models import (
    FlushRequest,
    KVCache,
    PauseMode,
    PauseRequest,
    PrepareRequest,
    ResumeRequest,
    UpdateRequest,
    VerifyRequest,
    WorkerReport,
)
from rlfleet_contract.problems import Code
from rlfleet_sidecar.bounds import within
from rlfleet_sidecar.dialects import meaning
from rlfleet_sidecar.dialects.questions import Questions
from rlfleet_sidecar.engine import Engine
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.fencing import Fencing
from rlfleet_sidecar.journal import Journal
from rlfleet_sidecar.logs import fields
from rlfleet_sidecar.place import Layout
from rlfleet_sidecar.sent import demand_unowned, label_of, version_of
from rlfleet_sidecar.settings import Settings
from rlfleet_sidecar.swap import State
from rlfleet_sidecar.transfer import Info, Transfer

_log = logging.getLogger(__name__)
_PAUSE_S = 240.0
"""Shorter than prime-rl waits for one pause, 300 s, so that it is told why."""
_FLUSH_S = 30.0


class Trainer:
    """The worker as clients see it that know neither operations nor versions."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        journal: Journal,
        fencing: Fencing,
        transfer: Transfer,
    ) -> None:
        self._settings = settings
        self._layout = Layout.of(settings.weights_path)
        self._engine = engine
        self.questions = Questions(engine, journal)
        self._journal = journal
        self._fencing = fencing
        self._transfer = transfer
        self._updates: dict[str, asyncio.Task[WorkerReport]] = {}
        """Those under way, by version."""
        self._preserving: str | None = None
        """The operation whose pause asked for the caches to be kept; forgotten, they are
        emptied."""

    @property
    def state(self) -> State:
        """How the worker stands."""
        return self._journal.state

    async def pause(self, mode: PauseMode, *, clear_cache: bool) -> WorkerReport:
        """Pause, and begin a change: how the one before ended does not matter any more."""
        operation = self._operation()
        request = PauseRequest(
            operation=operation,
            version=meaning.held(self.state),
            mode=mode,
            kv_cache=KVCache.RESET if clear_cache else KVCache.PRESERVE,
            timeout_s=_PAUSE_S,
            ttl_s=self._settings.trainer_ttl_s,
        )
        report = await self._fencing.unfenced(request)
        self._preserving = None if clear_cache else operation
        self._journal.trainer_failed(None)
        return report

    async def resume(self) -> WorkerReport:
        """Open the gate over what is proved, unless the last update did not end well."""
        updating = next(iter(self._updates), None)
        meaning.demand_resumable(self.state, self._journal.trainer_failure, updating)
        return await self._fencing.unfenced(
            ResumeRequest(operation=self._operation(), version=meaning.held(self.state))
        )

    async def update(
        self,
        directory: str,
        *,
        named: str | None = None,
        must_be_paused: bool = False,
        preserve: bool = True,
    ) -> WorkerReport:
        """Wait for a version, check it, load it and prove it; the same update joins this one.

        Args:
            directory: The version's own, as this worker sees it.
            named: What the caller calls the version; None: it does not say.
            must_be_paused: Refuse a worker that is not.
            preserve: Let the caches live if the pause before asked for that.

        """
        try:
            version = self._version_of(directory, named)
            if must_be_paused:
                meaning.demand_paused(self.state)
        except SidecarError as error:
            self._failed(error)
            raise
        return await self._joined(version, preserve=preserve)

    def load_nothing(self) -> str | None:
        """Take an update that names no directory; tells the version that stays.

        It is refused to a trainer that asked for a broadcast: it would take the weights
        that were there before for those that it sent.
        """
        if self._journal.broadcasting:
            self.refuse_update(meaning.OTHER_ENGINE)
        return label_of(self.state.proved)

    def refuse_broadcast(self) -> NoReturn:
        """Refuse a broadcast by an engine of the trainer's own, and what it sends by it later.

        prime-rl passes over this refusal, and goes on as if its group had formed.
        """
        self._journal.broadcast(is_meant=True)
        raise SidecarError(Code.INVALID_REQUEST, meaning.OTHER_ENGINE)

    def refuse_update(self, why: str) -> NoReturn:
        """Refuse an update of a kind that is not served; a resume after it is refused too."""
        error = SidecarError(Code.INVALID_REQUEST, why)
        self._failed(error)
        raise error

    # --- weights that the trainer sends ---------------------------------------------------------

    async def init_transfer(self, info: Mapping[str, Any]) -> None:
        """Form a group with the trainer; if it does not form, the worker goes on as before."""
        meaning.demand_up(self.state)
        operation = self._sending()
        await self._transfer.init(operation, info)

    async def start_transfer(self) -> None:
        """Begin an update of the paused engine with what its trainer will send."""
        await self._sent(self._transfer.start)

    async def send(self, info: Info) -> None:
        """Have the engine receive a part of it."""
        await self._sent(lambda operation: self._transfer.update(operation, info))

    async def finish_transfer(self, named: str | None) -> WorkerReport:
        """End the update, and prove what can be: that the engine answers, always the same."""
        try:
            version = version_of(named, uuid4().hex[:12])
        except SidecarError as error:
            self._failed(error)
            raise
        operation = self._operation()
        await self._sent(lambda _: self._transfer.finish(operation, version))
        try:
            if self._preserving != operation:
                await self._fencing.unfenced(FlushRequest(operation=operation, version=version))
            report = await self._fencing.unfenced(
                VerifyRequest(operation=operation, version=version)
            )
        except SidecarError as error:
            self._failed(error)
            raise
        self._journal.trainer_failed(None)
        return report

    async def _sent(self, act: Callable[[str], Awaitable[None]]) -> None:
        """Carry out a part of an update; a resume is refused from here to its end."""
        try:
            meaning.demand_up(self.state)
            operation = self._sending()
            # Before anything is done: a sidecar that dies in the midst of it must find it.
            self._journal.trainer_failed(meaning.not_ended("weights that are sent"))
            await act(operation)
        except SidecarError as error:
            self._failed(error)
            raise

    def _sending(self) -> str:
        """Tell the operation, and see that these weights would not be led back at once."""
        demand_unowned(self._fencing.target)
        operation = self._operation()
        self._fencing.demand_unled(operation)
        return operation

    async def reset_cache(self, *, reset_running: bool) -> bool:
        """Empty the KV and prefix cache; tells whether vLLM did."""
        meaning.demand_up(self.state)
        self._fencing.demand_unled(meaning.PREFIX)
        async with within(Code.FLUSH_FAILED, _FLUSH_S):
            return await self._engine.reset_cache(reset_running=reset_running)

    async def landed(self) -> None:
        """Wait until no update is under way."""
        if self._updates:
            await asyncio.wait(self._updates.values())

    async def _joined(self, version: str, *, preserve: bool) -> WorkerReport:
        task = self._updates.get(version)
        if task is None:
            task = asyncio.create_task(self._update(version, preserve=preserve))
            self._updates[version] = task
            task.add_done_callback(lambda done: self._ended(version, done))
        return await asyncio.shield(task)

    def _ended(self, version: str, task: asyncio.Task[WorkerReport]) -> None:
        self._updates.pop(version)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, SidecarError):
            self._failed(error)

    def _failed(self, error: SidecarError) -> None:
        problem = error.problem()
        self._journal.trainer_failed(problem)
        _log.info("A trainer's update did not end well", extra=fields(**problem.model_dump()))

    async def _update(self, version: str, *, preserve: bool) -> WorkerReport:
        state, settings, operation = self.state, self._settings, self._operation()
        # Before anything is done: a sidecar that dies in the midst of it must find it.
        self._journal.trainer_failed(meaning.not_ended(version))
        meaning.demand_up(state)
        await self._fencing.unfenced(
            PrepareRequest(
                operation=operation,
                version=version,
                timeout_s=settings.trainer_prepare_s,
                wait_s=settings.trainer_wait_s,
            )
        )
        is_kept = preserve and self._preserving == operation
        report = await self._fencing.unfenced(
            UpdateRequest(
                operation=operation,
                version=version,
                through=meaning.through(state),
                kv_cache=KVCache.PRESERVE if is_kept else KVCache.RESET,
                ttl_s=settings.trainer_ttl_s,
            )
        )
        self._journal.trainer_failed(None)
        self._journal.broadcast(is_meant=False)
        return report

    def _version_of(self, directory: str, named: str | None) -> str:
        is_model = Path(directory) == self._settings.model_path
        version = BASE_VERSION if is_model else self._layout.version_of(directory)
        if named not in {None, version}:
            raise SidecarError(
                Code.INVALID_REQUEST,
                f"weight_version: {directory:.300} is version {version} and not {named:.128}: a"
                " version is the name of its directory",
            )
        return version

    def _operation(self) -> str:
        lead = self._journal.lead
        led_by = None if lead is None else (lead.operation, lead.epoch)
        return meaning.operation_of(led_by, meaning.PREFIX + uuid4().hex[:12])
