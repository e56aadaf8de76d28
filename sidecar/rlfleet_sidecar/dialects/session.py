"""Turns trainers' calls into commands without a fence.

It must stay true that nothing here changes gate, pause or weights except by a command through
the fencing, and that a failed update is recorded: these trainers send a resume even then, and
it must be rejected.
"""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from rlfleet_contract.paths import BASE_VERSION
from rlfleet_contract.single_flight import SingleFlight
from rlfleet_contract.worker.commands import (
    KVCache,
    PauseMode,
    PauseRequest,
    PrepareRequest,
    ResumeRequest,
    UpdateRequest,
)
from rlfleet_contract.worker.loaded_lora import AdapterReport
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage, WorkerReport
from rlfleet_sidecar.change.fencing import Fencing
from rlfleet_sidecar.change.transfer import Transfer
from rlfleet_sidecar.checkpoints.layouts import Layouts
from rlfleet_sidecar.dialects import rules
from rlfleet_sidecar.dialects.caller import CALLER
from rlfleet_sidecar.dialects.engine_queries import EngineQueries
from rlfleet_sidecar.dialects.lora import TrainerLoRA
from rlfleet_sidecar.dialects.operation import TrainerChange
from rlfleet_sidecar.dialects.pauses import ENDED, RESUMED, Pauses
from rlfleet_sidecar.dialects.retry import patience_of, patiently
from rlfleet_sidecar.dialects.transfer import TrainerTransfer
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.staging.prepare_job import SupersededError
from rlfleet_sidecar.state.journal import Journal
from rlfleet_sidecar.state.preconditions import demand_up
from rlfleet_sidecar.state.sent_weights import label_of
from rlfleet_sidecar.state.stage_machine import State
from rlfleet_sidecar.timeouts import within
from rlfleet_sidecar.vllm_client import EngineClient

_PAUSE_S = 240.0
"""Timeout of modes keep and abort; below prime-rl's 300 s, so that it gets the reason."""
_FLUSH_S = 30.0
_Report = TypeVar("_Report")


class TrainerSession:
    """The worker for clients that send neither operation nor version."""

    def __init__(
        self,
        settings: SidecarSettings,
        engine: EngineClient,
        journal: Journal,
        fencing: Fencing,
        transfer: Transfer,
        library: TrainerLoRA,
    ) -> None:
        self._settings = settings
        self._layouts = Layouts.of(settings)
        self._engine = engine
        self.questions = EngineQueries(settings, engine, journal)
        self._journal = journal
        self._fencing = fencing
        self._change = TrainerChange(journal, engine)
        self._library = library
        self._patience_s = patience_of(settings)
        self.sender = TrainerTransfer(self._change, fencing, transfer, library, self._patience_s)
        self._updates = SingleFlight[str]()
        """Updates under way, by version, or by directory while the version is unknown."""
        self._pauses = Pauses(self._patience_s)
        self._is_ending = False
        self._opens: str | None = None
        """The operation that the sidecar paused on its own and resumes at its end."""

    @property
    def state(self) -> State:
        """The worker's state."""
        return self._journal.state

    async def pause(self, mode: PauseMode, *, clear_cache: bool) -> WorkerReport:
        """Pause after any change under way; a repeat joins this pause."""
        return await self._pauses.join(
            (mode, clear_cache), lambda: self._pause(mode, clear_cache=clear_cache)
        )

    async def _pause(self, mode: PauseMode, *, clear_cache: bool) -> WorkerReport:
        """Pause and begin a change, which clears the result of the one before."""
        self._fencing.demand_unowned(*CALLER.get())
        settings, operation = self._settings, self._change.operation()
        drain_s = min(settings.trainer_drain_s, settings.trainer_ttl_s)
        request = PauseRequest(
            operation=operation,
            version=rules.loaded(self.state),
            mode=mode,
            kv_cache=KVCache.RESET if clear_cache else KVCache.PRESERVE,
            timeout_s=drain_s if mode is PauseMode.WAIT else _PAUSE_S,
            ttl_s=settings.trainer_ttl_s,
        )
        report = await self._fencing.unfenced(request)
        self._change.preserving = None if clear_cache else operation
        self._change.ended_well()
        return report

    async def resume(self) -> WorkerReport:
        """Open the gate over the proved version; raises if the last update failed."""
        self._pauses.withdraw(RESUMED)
        updating = next(iter(self._updates.keys), None)
        rules.demand_resumable(self.state, self._journal.record.trainer_failure, updating)
        up_s = {Code.ENGINE_UNREACHABLE: self._settings.trainer_up_s}
        return await patiently(self._resume, up_s)

    async def _resume(self) -> WorkerReport:
        return await self._fencing.unfenced(
            ResumeRequest(operation=self._change.operation(), version=rules.loaded(self.state))
        )

    async def update(
        self,
        directory: str,
        *,
        named: str | None = None,
        must_be_paused: bool = False,
        preserve: bool = True,
    ) -> WorkerReport:
        """Wait for a version, check, load and prove it; a repeat joins this update.

        Args:
            directory: The version's directory, in the worker's file system.
            named: The caller's name for the version; None: it sent none.
            must_be_paused: Reject a worker that is not paused.
            preserve: Keep the caches if the pause before asked for that.

        """
        with self._change.recording():
            version = self._version_of(directory, named)
            if must_be_paused:
                rules.demand_paused(self.state)
        return await self._joined(version, lambda: self._update(version, preserve=preserve))

    async def take(self, directory: str) -> WorkerReport | AdapterReport:
        """Load a directory: weights, or an adapter under the model's name."""
        return await self._joined(directory, lambda: self._take(directory))

    async def _take(self, directory: str) -> WorkerReport | AdapterReport:
        if await self._library.is_adapter(directory):
            return await self._adapt(directory)
        try:
            return await self.update(directory)
        except SidecarError:
            # A network volume may show the files late.
            if not await self._library.is_adapter(directory):
                raise
            return await self._adapt(directory)

    async def _adapt(self, directory: str) -> AdapterReport:
        operation = self._change.operation()
        self._change.begun(rules.adapter_version(directory))
        adapter = await self._library.load(self._settings.model_name, directory, operation)
        self._change.ended_well()
        self._journal.broadcast(is_meant=False)
        return adapter

    def load_nothing(self) -> str | None:
        """Accept an update without a directory; returns the version, which stays.

        Raises for a trainer that asked for a broadcast, because it would believe that its weights
        had arrived.
        """
        if self._journal.record.broadcasting:
            self._change.refuse(rules.OTHER_ENGINE)
        return label_of(self.state.proved)

    def refuse_broadcast(self) -> NoReturn:
        """Reject a broadcast by prime-rl's transfer engine, and record it.

        prime-rl ignores this error and continues as if its group had formed.
        """
        self._journal.broadcast(is_meant=True)
        raise SidecarError(Code.INVALID_REQUEST, rules.OTHER_ENGINE)

    def refuse_update(self, why: str) -> NoReturn:
        """Reject an update of an unsupported kind; a resume after it is rejected too."""
        self._change.refuse(why)

    async def start_unpaused(self, *, clear_cache: bool) -> None:
        """Begin a transfer to a worker that its trainer has not paused; it opens at the end.

        Weights must not arrive while an engine computes. So requests freeze, and continue with
        the new weights.
        """
        if rules.is_paused(self.state):
            await self.sender.start()
            return
        self.sender.demand_group()
        await self.pause(PauseMode.KEEP, clear_cache=clear_cache)
        self._opens = self._change.operation()
        try:
            await self.sender.start()
        except SidecarError:
            if self.state.stage is Stage.PAUSED:
                await self._resume()
            raise

    async def finish_sending(self, named: str | None) -> WorkerReport:
        """End such an update, and resume a worker that the sidecar paused for it."""
        opens = self._opens == self._change.operation()
        report = await self.sender.finish(named)
        return await self._resume() if opens else report

    async def reset_cache(self, *, reset_running: bool) -> bool:
        """Flush the KV and prefix cache; returns whether vLLM did."""
        demand_up(self.state.stage)
        self._fencing.demand_unled(rules.PREFIX)
        async with within(Code.FLUSH_FAILED, _FLUSH_S):
            return await self._engine.reset_cache(reset_running=reset_running)

    async def abort(self, request_id: str) -> None:
        """Abort one request; succeeds if the engine does not know it."""
        demand_up(self.state.stage)
        async with within(Code.ENGINE_UNREACHABLE, _FLUSH_S):
            await self._engine.abort(rules.engine_ids(request_id))

    async def landed(self) -> None:
        """Wait until no update is under way; pauses that wait are cancelled."""
        self._is_ending = True
        self._pauses.withdraw(ENDED)
        await self._updates.landed()

    async def _joined(self, what: str, act: Callable[[], Coroutine[Any, Any, _Report]]) -> _Report:
        async def noted() -> _Report:
            with self._change.recording():
                return await act()

        return await self._updates.join(what, noted)

    async def _update(self, version: str, *, preserve: bool) -> WorkerReport:
        operation = self._change.operation()
        self._fencing.demand_unowned(*CALLER.get())
        # Recorded first, for a restart of the sidecar during the update.
        self._change.begun(version)
        await patiently(self._demand_up, self._patience_s)
        self._library.demand_bare()
        await self._prepare(operation, version)
        is_kept = preserve and await self._change.keeps_caches(operation)

        async def load() -> WorkerReport:
            await self._demand_up()
            request = UpdateRequest(
                operation=operation,
                version=version,
                # An engine that restarted in between is no longer paused.
                through=rules.through(self.state),
                kv_cache=KVCache.PRESERVE if is_kept else KVCache.RESET,
                ttl_s=self._settings.trainer_ttl_s,
            )
            return await self._fencing.unfenced(request)

        report = await patiently(load, self._patience_s)
        self._change.ended_well()
        self._journal.broadcast(is_meant=False)
        return report

    async def _demand_up(self) -> None:
        """Raise unless the engine is up and the fleet has no target."""
        if self._is_ending:
            raise SidecarError(
                Code.WRONG_STAGE, "the sidecar is shutting down; send the update again"
            )
        self._fencing.demand_unowned(*CALLER.get())
        demand_up(self.state.stage)

    async def _prepare(self, operation: str, version: str) -> None:
        request = PrepareRequest(
            operation=operation,
            version=version,
            timeout_s=self._settings.trainer_prepare_s,
            wait_s=self._settings.trainer_wait_s,
        )

        async def prepare() -> None:
            await self._demand_up()
            await self._fencing.unfenced(request)

        try:
            await patiently(prepare, self._patience_s)
        except SupersededError:
            # If the fleet has a target by now, that is the reason to report.
            self._fencing.demand_unowned(*CALLER.get())
            raise

    def _version_of(self, directory: str, named: str | None) -> str:
        is_model = Path(directory) == self._settings.model_path
        version = BASE_VERSION if is_model else self._layouts.version_of(directory)
        if named not in {None, version}:
            raise SidecarError(
                Code.INVALID_REQUEST,
                f"weight_version: got {named:.128}, expected {version}, the name of the directory"
                f" {directory:.300}",
            )
        return version
