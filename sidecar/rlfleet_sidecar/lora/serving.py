"""Has the engine serve adapters, and knows which it serves.

It must stay true that what is said to be loaded was heard from this start of the engine,
and that an adapter which cannot be loaded neither takes the place of another nor keeps
the model itself from serving; unless it shall answer under the model's own name, for which
the model must not answer in its place.
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
from rlfleet_sidecar.cache.prepare_job import Work
from rlfleet_sidecar.cache.store import Store
from rlfleet_sidecar.errors import EngineError, SidecarError, log_fields
from rlfleet_sidecar.lora.cache import Copies, is_whole
from rlfleet_sidecar.lora.registry import Book, LoRACopy, RegistryEntry
from rlfleet_sidecar.lora.rules import LoRAStep, step_to
from rlfleet_sidecar.timeouts import in_thread, within
from rlfleet_sidecar.vllm_client import Engine

_LOOK_S = 2.0
_REST_S = 0.5
_SEEN_S = 30.0
_WITHDRAW_S = 5.0
_AWAITED = frozenset({Code.VERSION_NOT_FOUND, Code.CHECKPOINT_INCOMPLETE})
_NOTHING = EngineAdapters(boot="", adapters={})
_log = logging.getLogger(__name__)


class Adapters:
    """The adapters of one worker."""

    def __init__(
        self, model: str, engine: Engine, store: Store, copies: Copies, book: Book
    ) -> None:
        self._model = model
        """The name under which the engine serves the model."""
        self._engine = engine
        self._store = store
        self._copies = copies
        self._book = book
        self._told = _NOTHING
        """What the engine serves, as it said last; of no other start of it."""
        self.running: Running | None = None
        """The command that is being carried out."""

    def reports(self, boot: str | None) -> list[AdapterReport]:
        """Tell each adapter that this start of the engine serves, or shall serve."""
        told = self._told if boot == self._told.boot else _NOTHING
        return [_report(name, entry, told) for name, entry in self._entries()]

    def _entries(self) -> list[tuple[str, RegistryEntry]]:
        return sorted(self._book.entries.items())

    async def look(self, boot: str) -> None:
        """Ask a start of the engine what it serves, until that is known."""
        if boot != self._told.boot or self._told.under_way:
            await self._ask()

    async def _ask(self) -> None:
        # An API server that is slow for a moment is no fault of any adapter's.
        async with within(Code.ENGINE_UNREACHABLE, _LOOK_S):
            self._told = await self._engine.adapters()

    async def restore(self, boot: str, timeout_s: float) -> None:
        """Have an engine that is about to serve the model serve the adapters too.

        What cannot be loaded in the time for all of them is noted, and the model is served
        without it: clients wait. What this start was heard to serve holds if it does not answer.
        Raises if what is missing then has the model's own name.
        """
        end = time.monotonic() + timeout_s
        try:
            await self._ask()
        except SidecarError as error:
            _log.warning("The engine does not report its adapters", extra={"error": str(error)})
            if self._told.boot != boot:
                self._demand_led(error)
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
                    self._demand_led(error)

    def _demand_led(self, why: SidecarError) -> None:
        """See that no adapter shall answer under the model's name; one that shall is not there."""
        entry = self._book.entries.get(self._model)
        if entry is not None and entry.wanted is not None:
            raise SidecarError(
                Code.RESUME_FAILED,
                f"adapter {entry.wanted.version}, which answers under the model's name, did not"
                f" come back, and the model would answer in its place: {why.message}. It is tried"
                " again; a new pod begins with what the others serve",
            ) from why

    async def _bring_back(self, boot: str, copy: LoRACopy, left_s: float) -> None:
        if self._is_served(copy):
            return
        if left_s <= 0:
            raise SidecarError(
                Code.ADAPTER_FAILED, "the others took the time for all adapters: load it anew"
            )
        async with within(Code.ADAPTER_FAILED, left_s):
            # What the engine serves is not known any more after a load that did not end.
            await self.look(boot)
            if not self._is_served(copy):
                await self._load(boot, copy)

    def _is_served(self, copy: LoRACopy) -> bool:
        """Tell whether a copy is served under its name, and nothing else is on its way there."""
        served = self._told.adapters.get(copy.name)
        is_settled = copy.name not in self._told.under_way
        return is_settled and step_to(str(copy.directory), served) is LoRAStep.NOTHING

    def _note(self, name: str, error: SidecarError) -> None:
        """Note what could not be brought back, even where that cannot be written down."""
        try:
            self._failed(name, error)
        except OSError as unwritten:
            _log.warning("An adapter's failure cannot be noted", extra={"error": str(unwritten)})

    async def is_adapter(self, directory: str) -> bool:
        """Tell whether an adapter's configuration lies in a directory."""
        try:
            async with asyncio.timeout(_SEEN_S):
                return await in_thread(partial(self._copies.is_adapter, directory))
        except TimeoutError as error:
            raise SidecarError(
                Code.CHECKPOINT_UNREADABLE,
                f"{directory:.300} could not be looked at within {_SEEN_S:g} s: look at the volume",
            ) from error

    async def copied(self, request: LoadAdapterRequest) -> LoRACopy:
        """Wait until an adapter is complete, check it and copy it."""
        work = Work(request.version, request.timeout_s)
        take = partial(self._copies.take, request, work, self._store.free, self._served())
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
                    Code.CHECKPOINT_UNREADABLE, f"{request.path}: {error.strerror or error}"
                ) from error

    def _served(self) -> frozenset[Path]:
        """Tell the directories that the engine reads adapters from, now or after a restart."""
        wanted = (entry.wanted for entry in self._book.entries.values())
        named = {copy.directory for copy in wanted if copy is not None}
        return frozenset(named | {Path(one) for one in self._told.adapters.values()})

    async def load(self, boot: str, request: LoadAdapterRequest, copy: LoRACopy) -> None:
        """Serve a copy under its name; what was served under it stays if that fails."""
        await self._ask()
        if not self._is_served(copy):
            try:
                async with within(Code.ADAPTER_FAILED, request.timeout_s):
                    await self._load(boot, copy)
            except SidecarError:
                if copy.name == self._model and not self._told.boot:
                    await self._withdraw(boot)
                raise
        self._book.put(copy.name, RegistryEntry(wanted=copy, is_declared=request.is_declared))

    async def _withdraw(self, boot: str) -> None:
        """See that a load which was given up, and may still end, takes not the model's name.

        Samplers would get what its caller was told has failed; under another name nobody asks.
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
            _log.warning("A load that was given up may still end", extra={"error": str(error)})

    async def unload(self, boot: str, request: UnloadAdapterRequest) -> None:
        """Serve a name no more."""
        await self._ask()
        is_there = step_to(None, self._told.adapters.get(request.name)) is not LoRAStep.NOTHING
        if is_there or request.name in self._told.under_way:
            async with within(Code.ADAPTER_FAILED, request.timeout_s):
                await self._adapt(boot, request.name, None)
        self._book.drop(request.name)
        _log.info("An adapter was unloaded", extra={"adapter": request.name})

    def is_taken(self, name: str) -> bool:
        """Tell whether something was loaded under a name, and not unloaded since."""
        entry = self._book.entries.get(name)
        return entry is not None and entry.wanted is not None

    def failed(
        self, request: LoadAdapterRequest | UnloadAdapterRequest, error: SidecarError
    ) -> None:
        """Note why a command failed; what is served under its name stays."""
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
        """Note a failure; of a name that nobody knows only if no caller waits to hear of it."""
        problem = error.problem()
        entry = self._book.entries.get(name)
        if entry is not None or not is_awaited:
            entry = entry or RegistryEntry()
            update = {"problem": problem, "is_declared": entry.is_declared or is_declared}
            self._book.put(name, entry.model_copy(update=update))
        _log.warning("An adapter failed", extra={"adapter": name, **log_fields(problem)})

    def begin(self, request: LoadAdapterRequest | UnloadAdapterRequest) -> None:
        """Note what is being carried out."""
        self.running = Running(
            verb=Verb.ADAPT, operation=request.operation, version=request.version
        )

    def end(self) -> None:
        """Note that nothing is any more."""
        self.running = None

    async def _load(self, boot: str, copy: LoRACopy) -> None:
        if not await in_thread(partial(is_whole, copy)):
            raise SidecarError(
                Code.CHECKPOINT_INVALID,
                f"{copy.directory} is not what was checked any more: load it anew",
            )
        await self._adapt(boot, copy.name, str(copy.directory), str(copy.source))
        if self._told.adapters.get(copy.name) != str(copy.directory):
            raise SidecarError(
                Code.ADAPTER_FAILED, f"the engine does not list {copy.name} after loading it"
            )
        _log.info(
            "An adapter was loaded",
            extra={"adapter": copy.name, "version": copy.version, "digest": copy.digest},
        )

    async def _adapt(
        self, boot: str, name: str, directory: str | None, root: str | None = None
    ) -> None:
        try:
            self._told = await self._engine.adapt(boot, name, directory, root)
        except EngineError:
            # It has answered: all is as it was.
            raise
        except BaseException:
            # It may go on with it, though nobody waits for it any more.
            self._told = _NOTHING
            raise


def _report(name: str, entry: RegistryEntry, told: EngineAdapters) -> AdapterReport:
    copy = entry.wanted
    is_loaded = copy is not None and told.adapters.get(name) == str(copy.directory)
    return AdapterReport(
        name=name,
        version=None if copy is None else copy.version,
        path=None if copy is None else str(copy.source),
        digest=None if copy is None else copy.digest,
        is_loaded=is_loaded,
        number=told.numbers.get(name) if is_loaded else None,
        is_declared=entry.is_declared,
        problem=entry.problem,
    )
