"""Has the engine load and unload adapters, and reports which it serves.

It must stay true that an adapter counts as loaded only by a report of the engine's current
boot, and that an adapter which cannot be loaded neither replaces another nor keeps the model
from serving. Except for one with the model's name: there the base model must not answer.
"""

import asyncio
import logging
import time
from functools import partial
from pathlib import Path

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.loaded_lora import AdapterReport, EngineAdapters
from rlfleet_contract.worker.lora import LoadAdapterRequest, UnloadAdapterRequest
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Running
from rlfleet_sidecar.cache.store import VersionStore
from rlfleet_sidecar.errors import EngineError, SidecarError, log_fields
from rlfleet_sidecar.lora.cache import LoRACache, is_whole
from rlfleet_sidecar.lora.registry import LoRACopy, Registry, RegistryEntry
from rlfleet_sidecar.lora.rules import LoRAStep, step_to
from rlfleet_sidecar.staging.prepare_job import PrepareJob
from rlfleet_sidecar.timeouts import in_thread, within
from rlfleet_sidecar.vllm_client import EngineClient

_LOOK_S = 2.0
_REST_S = 0.5
_SEEN_S = 30.0
_WITHDRAW_S = 5.0
_AWAITED = frozenset({Code.VERSION_NOT_FOUND, Code.CHECKPOINT_INCOMPLETE})
_NOTHING = EngineAdapters(boot="", adapters={})
_log = logging.getLogger(__name__)


class LoRAServing:
    """The adapters of one worker."""

    def __init__(
        self,
        model: str,
        engine: EngineClient,
        store: VersionStore,
        copies: LoRACache,
        book: Registry,
    ) -> None:
        self._model = model
        """The name under which the engine serves the model."""
        self._engine = engine
        self._store = store
        self._copies = copies
        self._book = book
        self._seen = _NOTHING
        """The engine's last report, of its current boot."""
        self.running: Running | None = None
        """The command under way."""

    def reports(self, boot: str | None) -> list[AdapterReport]:
        """Return each adapter that this boot serves or must load again."""
        seen = self._seen if boot == self._seen.boot else _NOTHING
        return [_report(name, entry, seen) for name, entry in self._entries()]

    def _entries(self) -> list[tuple[str, RegistryEntry]]:
        return sorted(self._book.entries.items())

    async def look(self, boot: str) -> None:
        """Ask for a boot's adapters, if they are not known."""
        if boot != self._seen.boot or self._seen.under_way:
            await self._ask()

    async def _ask(self) -> None:
        # Not AdapterFailed: a slow API server says nothing about an adapter.
        async with within(Code.ENGINE_UNREACHABLE, _LOOK_S):
            self._seen = await self._engine.adapters()

    async def restore(self, boot: str, timeout_s: float) -> None:
        """Load all wanted adapters into an engine that is about to serve.

        ``timeout_s`` is for all of them, because clients wait. A failure is recorded and the model
        is served without the adapter; if the adapter has the model's name, the failure is raised.
        If the engine does not answer, the last report of this boot counts.
        """
        end = time.monotonic() + timeout_s
        try:
            await self._ask()
        except SidecarError as error:
            _log.warning("Failed to list the engine's adapters", extra={"error": str(error)})
            if self._seen.boot != boot:
                self._demand_optional(error)
                return
        for name, entry in self._entries():
            if entry.wanted is None:
                continue
            try:
                await self._bring_back(boot, entry.wanted, end - time.monotonic())
            except SidecarError as error:
                error.version = entry.wanted.version
                self._note(name, error)
                if name == self._model:
                    self._demand_optional(error)

    def _demand_optional(self, why: SidecarError) -> None:
        """Raise if an adapter is wanted under the model's name."""
        entry = self._book.entries.get(self._model)
        if entry is not None and entry.wanted is not None:
            raise SidecarError(
                Code.RESUME_FAILED,
                f"failed to load adapter {entry.wanted.version} under the model's name:"
                f" {why.message}; the sidecar retries, or delete the pod",
            ) from why

    async def _bring_back(self, boot: str, copy: LoRACopy, left_s: float) -> None:
        if self._is_served(copy):
            return
        if left_s <= 0:
            raise SidecarError(
                Code.ADAPTER_FAILED, "no time left after other adapters; load it again"
            )
        async with within(Code.ADAPTER_FAILED, left_s):
            # After a load without an answer the engine's adapters are unknown.
            await self.look(boot)
            if not self._is_served(copy):
                await self._load(boot, copy)

    def _is_served(self, copy: LoRACopy) -> bool:
        """Return whether a copy is served under its name, and no load for it is under way."""
        served = self._seen.adapters.get(copy.name)
        is_settled = copy.name not in self._seen.under_way
        return is_settled and step_to(str(copy.directory), served) is LoRAStep.NOTHING

    def _note(self, name: str, error: SidecarError) -> None:
        """Record a failure; a full disk must not keep the model from serving."""
        try:
            self._failed(name, error)
        except OSError as unwritten:
            _log.warning("Failed to record an adapter's failure", extra={"error": str(unwritten)})

    async def is_adapter(self, directory: str) -> bool:
        """Return whether a directory contains an adapter's configuration."""
        try:
            async with asyncio.timeout(_SEEN_S):
                return await in_thread(partial(self._copies.is_adapter, directory))
        except TimeoutError as error:
            raise SidecarError(
                Code.CHECKPOINT_UNREADABLE,
                f"the volume of {directory:.300} did not answer within {_SEEN_S:g} s; check its"
                " mount",
            ) from error

    async def copied(self, request: LoadAdapterRequest) -> LoRACopy:
        """Wait until an adapter is complete, check and copy it."""
        work = PrepareJob(request.version, request.timeout_s)
        take = partial(self._copies.take, request, work, self._store.free, self._served)
        end = time.monotonic() + min(request.wait_s, request.timeout_s)
        while True:
            try:
                return await work.carried_out(take)
            except SidecarError as error:
                if error.code not in _AWAITED or time.monotonic() > end:
                    raise
                await asyncio.sleep(_REST_S)
            except OSError as error:
                raise SidecarError(
                    Code.CHECKPOINT_UNREADABLE,
                    f"failed to read {request.path}: {error.strerror or error}; check its volume",
                ) from error

    def _served(self) -> frozenset[Path]:
        """Return the directories that the engine reads adapters from, now or after a restart."""
        wanted = (entry.wanted for entry in self._book.entries.values())
        named = {copy.directory for copy in wanted if copy is not None}
        return frozenset(named | {Path(one) for one in self._seen.adapters.values()})

    async def load(self, boot: str, request: LoadAdapterRequest, copy: LoRACopy) -> None:
        """Load a copy under its name; on failure the adapter of that name stays."""
        await self._ask()
        if not self._is_served(copy):
            try:
                async with within(Code.ADAPTER_FAILED, request.timeout_s):
                    await self._load(boot, copy)
            except SidecarError:
                if copy.name == self._model and not self._seen.boot:
                    await self._withdraw(boot)
                raise
        self._book.put(copy.name, RegistryEntry(wanted=copy, is_declared=request.is_declared))

    async def _withdraw(self, boot: str) -> None:
        """Undo a load under the model's name that timed out and may still succeed.

        Else samplers would get an adapter that counts as failed. Under another name they do not
        use it.
        """
        entry = self._book.entries.get(self._model)
        before = None if entry is None else entry.wanted
        try:
            async with within(Code.ADAPTER_FAILED, _WITHDRAW_S):
                if before is None:
                    await self._adapt(boot, self._model, None)
                else:
                    await self._load(boot, before)
        except SidecarError as error:
            _log.warning("Failed to undo a load that timed out", extra={"error": str(error)})

    async def unload(self, boot: str, request: UnloadAdapterRequest) -> None:
        """Unload a name; no error if it is not loaded."""
        await self._ask()
        is_there = step_to(None, self._seen.adapters.get(request.name)) is not LoRAStep.NOTHING
        if is_there or request.name in self._seen.under_way:
            async with within(Code.ADAPTER_FAILED, request.timeout_s):
                await self._adapt(boot, request.name, None)
        self._book.drop(request.name)
        _log.info("Adapter unloaded", extra={"adapter": request.name})

    def is_taken(self, name: str) -> bool:
        """Return whether an adapter is wanted under a name."""
        entry = self._book.entries.get(name)
        return entry is not None and entry.wanted is not None

    def failed(
        self, request: LoadAdapterRequest | UnloadAdapterRequest, error: SidecarError
    ) -> None:
        """Record why a command failed; the adapter of that name stays."""
        is_declared = isinstance(request, LoadAdapterRequest) and request.is_declared
        self._failed(request.name, error, is_awaited=request.fence is None, is_declared=is_declared)

    def _failed(
        self,
        name: str,
        error: SidecarError,
        *,
        is_awaited: bool = True,
        is_declared: bool = False,
    ) -> None:
        """Record a failure; for an unknown name only if no caller waits for the answer."""
        problem = error.problem()
        entry = self._book.entries.get(name)
        if entry is not None or not is_awaited:
            entry = entry or RegistryEntry()
            update = {"problem": problem, "is_declared": entry.is_declared or is_declared}
            self._book.put(name, entry.model_copy(update=update))
        _log.warning("Adapter failed", extra={"adapter": name, **log_fields(problem)})

    def begin(self, request: LoadAdapterRequest | UnloadAdapterRequest) -> None:
        """Record the command under way."""
        self.running = Running(
            verb=Verb.ADAPT, operation=request.operation, version=request.version
        )

    def end(self) -> None:
        """Record that no command is under way."""
        self.running = None

    async def _load(self, boot: str, copy: LoRACopy) -> None:
        if not await in_thread(partial(is_whole, copy)):
            raise SidecarError(
                Code.CHECKPOINT_INVALID,
                f"{copy.directory} has changed since its check; load the adapter again",
            )
        await self._adapt(boot, copy.name, str(copy.directory), str(copy.source))
        if self._seen.adapters.get(copy.name) != str(copy.directory):
            raise SidecarError(
                Code.ADAPTER_FAILED,
                f"the engine does not list {copy.name} after its load; see vLLM's log",
            )
        _log.info(
            "Adapter loaded",
            extra={"adapter": copy.name, "version": copy.version, "digest": copy.digest},
        )

    async def _adapt(
        self, boot: str, name: str, directory: str | None, root: str | None = None
    ) -> None:
        try:
            self._seen = await self._engine.adapt(boot, name, directory, root)
        except EngineError:
            # An answer: nothing has changed.
            raise
        except BaseException:
            # Without an answer the load may still succeed.
            self._seen = _NOTHING
            raise


def _report(name: str, entry: RegistryEntry, seen: EngineAdapters) -> AdapterReport:
    copy = entry.wanted
    is_loaded = copy is not None and seen.adapters.get(name) == str(copy.directory)
    return AdapterReport(
        name=name,
        version=None if copy is None else copy.version,
        path=None if copy is None else str(copy.source),
        digest=None if copy is None else copy.digest,
        is_loaded=is_loaded,
        number=seen.numbers.get(name) if is_loaded else None,
        is_declared=entry.is_declared,
        problem=entry.problem,
    )
