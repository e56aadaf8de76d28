"""The steps of a change, on the engine and the disk. Preconditions are checked elsewhere.

It must stay true that a worse stage is written before the act that leads to it, and a better
one after; and that every failure of a reload or a proof leads to DOUBT.
"""

import asyncio
import logging
import time
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
from rlfleet_sidecar.cache.preloader import Preloader
from rlfleet_sidecar.cache.store import VersionStore
from rlfleet_sidecar.change.gate_deadline import GateDeadline
from rlfleet_sidecar.change.prover import Prover
from rlfleet_sidecar.change.ranks import have_ranks_exited
from rlfleet_sidecar.change.self_tester import SelfTester
from rlfleet_sidecar.checkpoints.check import Checkpoint
from rlfleet_sidecar.errors import EngineError, EngineLostError, EngineRestartedError, SidecarError
from rlfleet_sidecar.lora.serving import LoRAServing
from rlfleet_sidecar.proof.evidence import LoadedWeights, demand_consumed
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.state.journal import Journal
from rlfleet_sidecar.state.stage_machine import StageEvent, fallback, observe
from rlfleet_sidecar.timeouts import in_thread, within
from rlfleet_sidecar.vllm_client import EngineClient

_LOOK_S = 2.0
_UNDO_S = 30.0
_PRESENT_S = 30.0
_ENDING_LOOKS = 5
_ENDING_S = 0.3
_LATE_S = 1.0
_LATE_LOOK_S = 0.01
_log = logging.getLogger(__name__)


class Steps:
    """The steps of a change, and observations of the engine."""

    def __init__(
        self,
        settings: SidecarSettings,
        engine: EngineClient,
        store: VersionStore,
        journal: Journal,
        adapters: LoRAServing,
    ) -> None:
        self._settings = settings
        self.adapters = adapters
        self._engine = engine
        self._store = store
        self._journal = journal
        self.preloader = Preloader(settings, engine, store, journal)
        self._prover = Prover(settings, engine, store, journal)
        self._keeper = GateDeadline(settings, engine, journal)
        self._tester = SelfTester(settings, engine, store, journal, self._prover)
        self._warm: str | None = None
        """The boot that has answered its first prompt."""
        self._again: str | None = None
        """The boot whose self-test is repeated; it accepts no command during that."""
        self.gate: GateState | None = None
        """The gate at the last poll."""
        self._flushed: str | None = None
        self.preloaded = 0.0
        """Share of the last reload's bytes that the engine had in memory before."""
        self.opens = False
        """Whether the command under way ends with an open gate."""

    @property
    def flushed(self) -> str | None:
        """The operation of the last successful flush, while its gate is closed."""
        return None if self._journal.paused_s is None else self._flushed

    async def demand_present(self, version: str, timeout_s: float) -> Checkpoint:
        """Return a prepared version; raises if its files have changed since the check.

        It has a timeout, because clients may wait and a mount whose server is gone never answers.
        """
        bound_s = min(timeout_s, _PRESENT_S)
        try:
            async with asyncio.timeout(bound_s):
                return await in_thread(partial(self._store.demand, version))
        except TimeoutError as error:
            raise SidecarError(
                Code.CHECKPOINT_UNREADABLE,
                f"the volume with {version} did not answer within {bound_s:g} s; check its mount",
            ) from error

    async def pause(self, request: PauseRequest) -> None:
        """Close the gate, then pause the engine."""
        self._journal.move(StageEvent.PAUSING, operation=request.operation)
        self._flushed = None
        async with within(Code.PAUSE_FAILED, request.timeout_s):
            await self._keeper.close(self._boot)
            await self._engine.pause(request.mode, request.kv_cache)
            if request.mode is not PauseMode.KEEP and self._journal.state.stage is Stage.PAUSED:
                await self._end_late(request)

    async def _end_late(self, request: PauseRequest) -> None:
        """End the requests that had passed the gate, and reached the core only after its pause.

        The core holds them, and would compute them after the resume: with other weights than the
        version that their replies name. One whose body or media arrive later stays.
        """
        deadline = time.monotonic() + _LATE_S
        while (await self._engine.gate()).in_flight and time.monotonic() < deadline:
            if request.mode is PauseMode.WAIT:
                await self._engine.resume()
            await asyncio.sleep(_LATE_LOOK_S)
            await self._engine.pause(request.mode, request.kv_cache)

    async def flush(self, request: FlushRequest) -> None:
        """Reset the caches of the paused engine."""
        async with within(Code.FLUSH_FAILED, request.timeout_s):
            await asyncio.gather(self._engine.flush(), self._engine.reset_encoder_cache())
        self._flushed = request.operation

    async def reload(self, request: ReloadRequest) -> None:
        """Load the prepared version; any failure after the begin leads to DOUBT."""
        checkpoint = await self.demand_present(request.version, request.timeout_s)
        before = self._journal.state.proof
        await self._empty_unsalted(request)
        await self.begin_load(request.operation, request.timeout_s, request.version)
        try:
            async with within(Code.RELOAD_FAILED, request.timeout_s, lost=Code.RELOAD_FAILED):
                installed = await self._engine.reload(
                    str(checkpoint.directory), checkpoint.files, request.timeout_s
                )
            demand_consumed(checkpoint.tensors, checkpoint.nbytes, checkpoint.digest, installed)
        except Exception:
            self._journal.move(StageEvent.RELOAD_FAILED, operation=request.operation)
            raise
        self.preloaded = min(one.preloaded for one in installed) / max(checkpoint.nbytes, 1)
        load = LoadedWeights(
            version=request.version,
            boot=self._boot,
            digest=checkpoint.digest,
            ranks=tuple(installed),
            before=before,
            probe=checkpoint.probe,
        )
        loaded = {"version": request.version, "preloaded": round(self.preloaded, 3)}
        _log.info("Version loaded", extra=loaded)
        self._prover.loaded(load)
        self._journal.move(
            StageEvent.RELOADED, version=request.version, operation=request.operation
        )

    async def begin_load(self, operation: str, timeout_s: float, version: str | None) -> None:
        """Record that the paused engine's weights are unknown from here on, at the gate first.

        ``version`` is the one that a command loads; a transfer has none yet.
        """
        async with within(Code.PAUSE_FAILED, timeout_s):
            closed = self._keeper.demand_closed(self._boot)
            if not (await asyncio.gather(self._engine.is_paused(), closed))[0]:
                raise EngineError("the engine is not paused although it should be; pause again")
            if self._flushed != operation:
                await self._engine.reset_encoder_cache()
        self._journal.move(StageEvent.RELOADING, version=version, operation=operation)

    async def _empty_unsalted(self, request: ReloadRequest) -> None:
        """Flush preserved caches if they have entries without a salt."""
        async with within(Code.FLUSH_FAILED, request.timeout_s):
            if self._flushed != request.operation and (await self._engine.gate()).has_unsalted:
                await self._engine.flush()

    async def verify(self, request: VerifyRequest) -> None:
        """Run the engine behind the closed gate and prove its weights."""
        was_proved = self._journal.state.proved is not None
        is_new = self._journal.state.stage is Stage.LOADED
        lost = Code.PROOF_FAILED if is_new else Code.ENGINE_UNREACHABLE
        try:
            async with (
                within(Code.PROOF_FAILED, request.timeout_s, lost=lost),
                self._prover.asking(self._boot) as asking,
            ):
                # Before the resume: frozen requests then continue with the new weights.
                await self._engine.begin_trial(self._boot, request.version, self._keeper.ttl_s)
                # The engine has the probe already, so that no request delays it. The core may
                # answer the resume only after its first pass.
                await asyncio.gather(self._resume_as(request.version), self._admit())
                proof = await self._prover.prove(
                    request.version, self._boot, request.expected, asking
                )
                loads = await self._keeper.end_trial(self._boot)
        except Exception:
            self._journal.move(StageEvent.PROOF_FAILED, operation=request.operation)
            await self._silence()
            if was_proved and self._journal.is_behind:
                # The disk still has the old proof, with which a restarted sidecar would serve.
                with suppress(SidecarError):
                    await self.end()
            raise
        self._journal.move(StageEvent.PROVED, proof=proof, operation=request.operation, loads=loads)
        await self._keeper.keep(fallback(self._journal.state))

    async def _resume_as(self, version: str) -> None:
        await self._engine.label(version)
        await self._engine.resume()

    async def _admit(self) -> None:
        """Let requests pass before the proof, if their replies can wait for it."""
        may_admit = self._prover.may_admit and self._journal.state.serving
        if self.opens and may_admit and await self._engine.admit(self._boot):
            self._journal.admitted()

    async def resume(self, request: ResumeRequest) -> None:
        """Open the gate for the proved version, after its adapters, which have the same timeout."""
        if self._journal.state.stage is Stage.PAUSED:
            async with within(Code.RESUME_FAILED, request.timeout_s):
                await self._engine.resume()
        await self.adapters.restore(self._boot, request.timeout_s)
        async with within(Code.RESUME_FAILED, request.timeout_s):
            await self._engine.open_gate(self._boot, self._journal.state.proved)
        self._journal.move(StageEvent.OPENED, operation=request.operation)

    async def undo(self) -> None:
        """End a pause without a reload: resume with the same weights."""
        proved = self._journal.state.proved
        async with within(Code.RESUME_FAILED, _UNDO_S):
            await self._engine.resume()
            if proved is not None:
                await self._engine.open_gate(self._boot, proved)
            else:
                await self._engine.close_gate(self._boot)
        self._journal.move(StageEvent.RELEASED if proved is None else StageEvent.OPENED)

    async def keep(self, rest_s: float | None) -> None:
        """Renew the gate's deadline; None: by a full TTL."""
        await self._keeper.keep(rest_s=rest_s)

    async def end(self) -> None:
        """End the engine; it restarts on the base model."""
        async with within(Code.INTERNAL, _LOOK_S):
            await self._engine.end()

    async def turn_away(self) -> None:
        """Reject the requests of an engine in doubt, frozen in it or at its gate."""
        await self._silence()
        # Last, because any other command to the gate lets requests wait again.
        async with within(Code.INTERNAL, _LOOK_S):
            await self._engine.refuse(self._boot)

    async def look(self) -> GateState | None:
        """Return the gate; None if the engine is gone. Raises TimeoutError if it is unknown."""
        try:
            async with asyncio.timeout(_LOOK_S):
                return await self._engine.gate()
        except EngineLostError:
            return None
        except EngineError as error:
            _log.warning("Engine without a gate, extension not loaded", extra={"error": str(error)})
            return None

    async def has_exited(self, failure: str) -> bool:
        """Return whether the engine's process has exited, after a step with this failure.

        vLLM's API server outlives its core for a moment; a hanging engine has not exited.
        """
        for _ in range(_ENDING_LOOKS):
            try:
                gate = await self.look()
            except TimeoutError:
                return False
            if gate is None or gate.boot != self._journal.state.boot:
                return True
            is_alive = await self._engine.is_alive(_LOOK_S)
            if is_alive and not await have_ranks_exited(self._engine, failure, _LOOK_S):
                return False
            await asyncio.sleep(_ENDING_S)
        return True

    async def is_halted(self) -> bool:
        """Return whether the engine is known to be paused."""
        with suppress(TimeoutError, EngineError, EngineLostError):
            async with asyncio.timeout(_LOOK_S):
                return await self._engine.is_paused()
        return False

    async def is_hung(self) -> bool:
        """Return whether the engine's core answers nothing for as long as an undone pause may take.

        The kubelet's probe does not ask the core behind a closed gate.
        """
        try:
            with suppress(EngineError, EngineLostError):
                async with asyncio.timeout(_UNDO_S):
                    await self._engine.is_paused()
        except TimeoutError:
            return True
        return False

    def forget_load(self) -> None:
        """Have the next proof not refer to the last checkpoint."""
        self._prover.loaded(None)

    def is_cold(self, gate: GateState) -> bool:
        """Return whether this boot has answered no prompt yet, or has weights of a self-test."""
        is_new = gate.boot not in {self._journal.state.boot, self._warm}
        return is_new or gate.boot == self._again or self._tester.is_spoilt(gate.boot)

    def note_due(self, gate: GateState) -> None:
        """Count a boot as cold if its postponed self-test is due.

        Only in Closed with the base model, where no request waits for the test.
        """
        state = self._journal.state
        is_as_booted = state.stage is Stage.CLOSED and state.installed == BASE_VERSION
        if is_as_booted and self._tester.is_due_again():
            self._again = gate.boot
            self.observe(gate)

    async def warm_up(self, gate: GateState) -> None:
        """Have a new boot answer its first prompt, behind the closed gate.

        The first answer compiles kernels, for half a minute on a CPU. In a proof that would be a
        timeout, and a good engine would be in doubt.
        """
        has_base = self._has_base(gate)
        try:
            async with within(Code.PROOF_FAILED, self._settings.warm_s):
                await self._engine.close_gate(gate.boot)
                if not has_base and await self._engine.is_paused():
                    # Frozen requests would continue with weights that nothing proved.
                    await self._engine.pause(PauseMode.ABORT, KVCache.RESET)
                await self._engine.resume()
                await self._prover.warm_up(gate.boot)
        except SidecarError as error:
            # It counts as warm: its proof will find a defect.
            _log.warning("Engine warm-up failed", extra={"error": str(error)})
        if await self._tester.test(gate.boot, is_as_booted=has_base):
            self._warm, self._again = gate.boot, None
            # A self-test loads, and has loaded the base again.
            with suppress(TimeoutError):
                self.observe(await self.look(), has_base=has_base)

    def observe(self, gate: GateState | None, *, has_base: bool = False) -> None:
        """Apply a poll of the engine to the stage; a cold engine counts as down.

        ``has_base``: it is known to hold the base, whatever the gate has counted.
        """
        self.gate = self._keeper.gate = gate
        if gate is None or self.is_cold(gate):
            boot, loads, version = None, 0, None
        else:
            boot, loads = gate.boot, gate.loads
            version = BASE_VERSION if has_base or self._has_base(gate) else None
        event = observe(self._journal.state, boot, loads)
        if event is not None:
            self._journal.move(event, boot=boot, version=version, loads=loads)

    def _has_base(self, gate: GateState) -> bool:
        """Return whether an engine holds its base, by its gate, or by a journal of its boot."""
        state = self._journal.state
        if state.boot != gate.boot:
            return gate.is_as_booted
        return state.loads == gate.loads and state.installed == BASE_VERSION

    async def align(self) -> None:
        """Move the gate to where the stage says it is, and resume an engine that should serve."""
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
            raise EngineRestartedError("the engine has not answered yet")
        return boot

    async def _silence(self) -> None:
        """Abort the requests that an unproved engine has begun to answer, with a marker."""
        try:
            async with asyncio.timeout(_LOOK_S):
                await self._engine.end_trial(self._boot, is_proved=False)
                await self._engine.pause(PauseMode.ABORT, KVCache.RESET)
        except (TimeoutError, EngineError, EngineLostError, EngineRestartedError) as error:
            _log.warning("Failed to pause the engine in doubt", extra={"error": str(error)})
