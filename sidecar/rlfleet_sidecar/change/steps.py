"""Each verb's doing, against the engine and the disk; who may call which is judged elsewhere.

It must stay true that a stage is written down before the act that makes it true and,
where the act makes things better, only after it; and that each way out of a reload or a
proof that did not end well leads through DOUBT.
"""

import asyncio
import logging
from contextlib import suppress
from functools import partial

from rlfleet_contract.engine.gate import GateState
from rlfleet_contract.paths import BASE_VERSION
from rlfleet_contract.worker.commands import (
    FlushRequest,
    KVCache,
    PauseMode,
    PauseRequest,
    ReloadRequest,
    ResumeRequest,
    VerifyRequest,
)
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.cache.store import Store
from rlfleet_sidecar.change.gate_deadline import Keeper
from rlfleet_sidecar.change.prover import Prover
from rlfleet_sidecar.change.self_tester import Tester
from rlfleet_sidecar.checkpoints.check import Checkpoint
from rlfleet_sidecar.errors import EngineError, EngineLostError, EngineRestartedError, SidecarError
from rlfleet_sidecar.lora.serving import Adapters
from rlfleet_sidecar.proof.evidence import LoadedWeights, demand_consumed
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.state.journal import Journal
from rlfleet_sidecar.state.stage_machine import StageEvent, fallback, observe
from rlfleet_sidecar.timeouts import in_thread, within
from rlfleet_sidecar.vllm_client import Engine

_LOOK_S = 2.0
_UNDO_S = 30.0
_PRESENT_S = 30.0
_ENDING_LOOKS = 5
_ENDING_S = 0.3
_log = logging.getLogger(__name__)


class Steps:
    """The steps of a change, and what is seen of the engine between them."""

    def __init__(
        self,
        settings: SidecarSettings,
        engine: Engine,
        store: Store,
        journal: Journal,
        adapters: Adapters,
    ) -> None:
        self._settings = settings
        self.adapters = adapters
        self._engine = engine
        self._store = store
        self._journal = journal
        self._prover = Prover(settings, engine, store, journal)
        self._keeper = Keeper(settings, engine, journal)
        self._tester = Tester(settings, engine, store, journal, self._prover)
        self._warm: str | None = None
        """The boot that has answered a first time."""
        self._again: str | None = None
        """The boot that is tested again, and takes no command meanwhile."""
        self.gate: GateState | None = None
        """The gate as it was seen last."""
        self._flushed: str | None = None

    @property
    def flushed(self) -> str | None:
        """The operation of the last flush that ended well, while the gate is closed for it."""
        return None if self._journal.paused_s is None else self._flushed

    async def demand_present(self, version: str, timeout_s: float) -> Checkpoint:
        """See that a prepared version still is what was checked.

        Clients may wait meanwhile, and a mount whose server is gone answers nothing for ever.
        """
        bound_s = min(timeout_s, _PRESENT_S)
        try:
            async with asyncio.timeout(bound_s):
                return await in_thread(partial(self._store.demand, version))
        except TimeoutError as error:
            raise SidecarError(
                Code.CHECKPOINT_UNREADABLE,
                f"the files of {version} could not be looked at within {bound_s:g} s: look at the"
                " volume",
            ) from error

    async def pause(self, request: PauseRequest) -> None:
        """Close the gate, then pause the engine."""
        self._journal.move(StageEvent.PAUSING, operation=request.operation)
        async with within(Code.PAUSE_FAILED, request.timeout_s):
            await self._keeper.close(self._boot)
            await self._engine.pause(request.mode, request.kv_cache)

    async def flush(self, request: FlushRequest) -> None:
        """Reset the caches of the paused engine."""
        async with within(Code.FLUSH_FAILED, request.timeout_s):
            await self._engine.flush()
        self._flushed = request.operation

    async def reload(self, request: ReloadRequest) -> None:
        """Install the prepared version; whatever goes wrong once it began is DOUBT."""
        checkpoint = await self.demand_present(request.version, request.timeout_s)
        before = self._journal.state.proof
        await self._empty_unsalted(request)
        async with within(Code.PAUSE_FAILED, request.timeout_s):
            if not await self._engine.is_paused():
                raise EngineError("the engine runs though it was paused; pause it again")
        await self.begin_load(request.operation, request.timeout_s, version=request.version)
        try:
            async with within(Code.RELOAD_FAILED, request.timeout_s, lost=Code.RELOAD_FAILED):
                installed = await self._engine.reload(
                    str(checkpoint.directory), checkpoint.files, request.timeout_s
                )
            demand_consumed(checkpoint.tensors, checkpoint.nbytes, checkpoint.digest, installed)
        except Exception:
            self._journal.move(StageEvent.RELOAD_FAILED, operation=request.operation)
            raise
        load = LoadedWeights(
            version=request.version,
            boot=self._boot,
            digest=checkpoint.digest,
            ranks=tuple(installed),
            before=before,
            probe=checkpoint.probe,
        )
        self._prover.loaded(load)
        self._journal.move(
            StageEvent.RELOADED, version=request.version, operation=request.operation
        )

    async def begin_load(
        self, operation: str, timeout_s: float, *, version: str | None = None
    ) -> None:
        """Write down that nobody knows from here on what the engine holds; the gate knows first.

        ``version`` is what a command loads; weights that a trainer sends have none yet.
        """
        async with within(Code.PAUSE_FAILED, timeout_s):
            await self._engine.reset_encoder_cache()
            await self._keeper.demand_closed(self._boot)
        self._journal.move(StageEvent.RELOADING, version=version, operation=operation)

    async def _empty_unsalted(self, request: ReloadRequest) -> None:
        """Empty caches that were to be kept and hold what no salt separates."""
        async with within(Code.FLUSH_FAILED, request.timeout_s):
            if self._flushed != request.operation and (await self._engine.gate()).has_unsalted:
                await self._engine.flush()

    async def verify(self, request: VerifyRequest) -> None:
        """Let the engine run behind the closed gate and prove what it holds."""
        was_proved = self._journal.state.proved is not None
        is_new = self._journal.state.stage is Stage.LOADED
        lost = Code.PROOF_FAILED if is_new else Code.ENGINE_UNREACHABLE
        try:
            async with within(Code.PROOF_FAILED, request.timeout_s, lost=lost):
                # Before the engine runs: frozen requests go on with the new weights from here.
                await self._engine.begin_trial(self._boot, request.version, self._keeper.ttl_s)
                await self._engine.label(request.version)
                await self._engine.resume()
                proof = await self._prover.prove(request.version, self._boot, request.expected)
                await self._engine.end_trial(self._boot, is_proved=True)
        except Exception:
            self._journal.move(StageEvent.PROOF_FAILED, operation=request.operation)
            await self._silence()
            if was_proved and self._journal.is_behind:
                # On disk it still is: a sidecar that starts then would have it serve again.
                with suppress(SidecarError):
                    await self.end()
            raise
        self._journal.move(StageEvent.PROVED, proof=proof, operation=request.operation)
        await self._keeper.keep(fallback(self._journal.state))

    async def resume(self, request: ResumeRequest) -> None:
        """Open the gate over what is proved; the adapters have as much time again."""
        if self._journal.state.stage is Stage.PAUSED:
            async with within(Code.RESUME_FAILED, request.timeout_s):
                await self._engine.resume()
        await self.adapters.restore(self._boot, request.timeout_s)
        async with within(Code.RESUME_FAILED, request.timeout_s):
            await self._engine.open_gate(self._boot, self._journal.state.proved)
        self._journal.move(StageEvent.OPENED, operation=request.operation)

    async def undo(self) -> None:
        """Leave a pause in which nothing was loaded: run on with what the engine holds."""
        proved = self._journal.state.proved
        async with within(Code.RESUME_FAILED, _UNDO_S):
            await self._engine.resume()
            if proved is not None:
                await self._engine.open_gate(self._boot, proved)
            else:
                await self._engine.close_gate(self._boot)
        self._journal.move(StageEvent.RELEASED if proved is None else StageEvent.OPENED)

    async def keep(self, rest_s: float | None) -> None:
        """Show the gate that this sidecar lives; None: as if the time to live began now."""
        await self._keeper.keep(rest_s=rest_s)

    async def end(self) -> None:
        """End the engine: it comes back on the boot weights."""
        async with within(Code.INTERNAL, _LOOK_S):
            await self._engine.end()

    async def turn_away(self) -> None:
        """Have nobody wait any longer for an engine in doubt, frozen in it or at its gate."""
        await self._silence()
        # Last: whatever else moves the gate has requests wait again.
        async with within(Code.INTERNAL, _LOOK_S):
            await self._engine.refuse(self._boot)

    async def look(self) -> GateState | None:
        """See which boot answers; None if none does. Raises TimeoutError if nobody knows."""
        try:
            async with asyncio.timeout(_LOOK_S):
                return await self._engine.gate()
        except EngineLostError:
            return None
        except EngineError as error:
            _log.warning(
                "The engine answers and has no gate: is vLLM run with the extension?",
                extra={"error": str(error)},
            )
            return None

    async def has_exited(self) -> bool:
        """Tell whether the engine's process has ended, after a step that it did not carry out.

        vLLM's API server outlives its core for a moment; one that hangs has not ended.
        """
        for _ in range(_ENDING_LOOKS):
            try:
                gate = await self.look()
            except TimeoutError:
                return False
            if gate is None or gate.boot != self._journal.state.boot:
                return True
            if await self._engine.is_alive(_LOOK_S):
                return False
            await asyncio.sleep(_ENDING_S)
        return True

    async def is_halted(self) -> bool:
        """Tell whether the engine is paused; not if nobody knows."""
        try:
            async with asyncio.timeout(_LOOK_S):
                return await self._engine.is_paused()
        except (TimeoutError, EngineError, EngineLostError):
            return False

    def forget_load(self) -> None:
        """See that what is proved next is not taken for the last checkpoint."""
        self._prover.loaded(None)

    def is_cold(self, gate: GateState) -> bool:
        """Tell whether this boot has answered no prompt yet, or holds weights of a test."""
        is_new = gate.boot not in {self._journal.state.boot, self._warm}
        return is_new or gate.boot == self._again or self._tester.is_spoilt(gate.boot)

    def note_due(self, gate: GateState) -> None:
        """Have a boot count as cold whose test was put off, and is due.

        An engine that is closed as it booted serves nobody, so its test keeps nobody waiting.
        """
        state = self._journal.state
        is_as_booted = state.stage is Stage.CLOSED and state.installed == BASE_VERSION
        if is_as_booted and self._tester.is_due_again():
            self._again = gate.boot
            self.heed(gate)

    async def warm_up(self, gate: GateState) -> None:
        """Have a new boot answer a first time, behind its closed gate and at leisure.

        The first answer compiles kernels, for half a minute on a CPU. In a proof that
        would be a timeout, and a good engine would be in doubt.
        """
        try:
            async with within(Code.PROOF_FAILED, self._settings.warm_s):
                await self._engine.close_gate(gate.boot)
                await self._engine.resume()
                await self._prover.warm_up(gate.boot)
        except SidecarError as error:
            # It counts as warm: if something is wrong with it, its proof will tell.
            _log.warning("The engine's first answer was not good", extra={"error": str(error)})
        if await self._tester.test(gate.boot):
            self._warm, self._again = gate.boot, None

    def heed(self, gate: GateState | None) -> None:
        """Let what was seen of the engine count; a cold one does not answer yet."""
        self.gate = self._keeper.gate = gate
        boot = None if gate is None or self.is_cold(gate) else gate.boot
        event = observe(self._journal.state, boot)
        if event is not None:
            version = None if gate is None else gate.version
            self._journal.move(event, boot=boot, version=version)

    async def align(self) -> None:
        """Bring the gate where the stage says it is, and have an engine run that is open."""
        state = self._journal.state
        async with within(Code.INTERNAL, _LOOK_S):
            if state.stage is Stage.OPEN:
                await self._engine.open_gate(self._boot, state.proved)
                await self._engine.resume()
            else:
                await self._keeper.close(self._boot)

    @property
    def _boot(self) -> str:
        boot = self._journal.state.boot
        if boot is None:
            raise EngineRestartedError("no boot of the engine was seen")
        return boot

    async def _silence(self) -> None:
        """End, with a mark, the requests that an unproved engine has begun to answer."""
        try:
            async with asyncio.timeout(_LOOK_S):
                await self._engine.end_trial(self._boot, is_proved=False)
                await self._engine.pause(PauseMode.ABORT, KVCache.RESET)
        except (TimeoutError, EngineError, EngineLostError, EngineRestartedError) as error:
            _log.warning("The engine in doubt did not pause", extra={"error": str(error)})
