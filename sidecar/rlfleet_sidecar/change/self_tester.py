"""Tests an engine's reload in place behind its closed gate, before it serves.

proof/selftest.py evaluates it. It must stay true that no engine serves with the test's
weights: after a passed test it has its base model again and answers as before, and after any
other it is ended. The journal records a test before its first reload, so that a restarted
sidecar ends the engine too.
"""

import asyncio
import logging
import math
import time

from rlfleet_contract.engine.rank_report import Installed
from rlfleet_contract.engine.safetensors import Tensor
from rlfleet_contract.worker.commands import KVCache, PauseMode
from rlfleet_contract.worker.selftest import EngineDescription, SelfTest
from rlfleet_sidecar.cache.store import VersionStore
from rlfleet_sidecar.change.prover import Prover
from rlfleet_sidecar.change.ranks import have_ranks_exited
from rlfleet_sidecar.errors import EngineError, EngineLostError, EngineRestartedError, SidecarError
from rlfleet_sidecar.proof import selftest
from rlfleet_sidecar.proof.probe import BadAnswerError, ProbeAnswer, spread
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.state.journal import Journal
from rlfleet_sidecar.state.required_tensors import drafters
from rlfleet_sidecar.timeouts import in_thread
from rlfleet_sidecar.vllm_client import EngineClient

_TIMES = 3
_ALIVE_S = 2.0
_LOST = (EngineLostError, EngineRestartedError, TimeoutError)
_log = logging.getLogger(__name__)


class SelfTester:
    """Tests each engine once, and records the result."""

    def __init__(
        self,
        settings: SidecarSettings,
        engine: EngineClient,
        store: VersionStore,
        journal: Journal,
        prover: Prover,
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._store = store
        self._journal = journal
        self._prover = prover

    async def test(self, boot: str, *, is_as_booted: bool = True) -> bool:
        """Test this boot unless an equal engine was tested already; never raises.

        Returns whether the engine still has the weights of its boot; otherwise it is ended.

        Args:
            boot: The engine's boot.
            is_as_booted: Whether it holds its base model. With another version, as after a lost
                journal, the test would find a faithful engine unfaithful: its next boot is tested.

        """
        if self.is_spoilt(boot):
            await self._end()
            return False
        try:
            described, tensors, engines = await self._described()
        except (SidecarError, EngineError, *_LOST) as error:
            _log.warning("Self-test not possible", extra={"error": str(error)})
            self._put_off_further()
            return True
        key = selftest.key_of(described, tensors, engines)
        if not self._is_due(key, is_tested=described.is_tested):
            return True
        begun = SelfTest(
            key=key,
            engine=described.title,
            is_tested=described.is_tested,
            unreached=described.unreached,
            boot=boot,
            attempts=selftest.attempts_of(self._journal.record.self_test, key),
        )
        rejected = self._rejected(begun, engines, described.unreloadable)
        if rejected is not None:
            self._journal.self_tested(rejected)
        elif self._settings.self_test_s and not is_as_booted:
            await self._end()
            return False
        elif self._settings.self_test_s:
            self._journal.self_tested(begun)
            await self._run(begun, tensors)
            if self.is_spoilt(boot):
                await self._end()
                return False
        return True

    def _rejected(self, begun: SelfTest, engines: int, why: str | None) -> SelfTest | None:
        """Return the result for an engine that is rejected without a test, or None.

        ``why``: no reload of it can succeed.
        """
        settings = self._settings
        if why is not None:
            return selftest.unreloadable(begun, why)
        if engines > 1:
            return selftest.unseen(begun.model_copy(update={"boot": None}), engines)
        if not begun.is_tested and (settings.require_tested or not settings.self_test_s):
            return selftest.untested(begun.model_copy(update={"boot": None}))
        last = self._journal.record.self_test
        if last is not None and selftest.is_exhausted(last, begun.key):
            return selftest.put_off(last, time.time(), settings.self_test_again_s)
        return None

    async def _described(self) -> tuple[EngineDescription, tuple[Tensor, ...], int]:
        """Return the engine, its base model's tensors, and how many data-parallel engines it is."""
        async with asyncio.timeout(self._settings.check_s):
            model = await in_thread(self._store.checkpoints.boot_model)
            kinds = selftest.kinds_of(model.tensors, ())
            described = await self._engine.describe(kinds)
            sizes = [await self._engine.world_size(include_dp=dp) for dp in (True, False)]
            return described, tuple(model.tensors.values()), sizes[0] // sizes[1]

    def is_due_again(self) -> bool:
        """Return whether a postponed test is due."""
        is_due = selftest.is_due_again(self._journal.record.self_test, time.time())
        return bool(self._settings.self_test_s) and is_due

    def _put_off_further(self) -> None:
        known = self._journal.record.self_test
        if known is not None and selftest.is_due_again(known, time.time()):
            later = selftest.put_off(known, time.time(), self._settings.self_test_again_s)
            self._journal.self_tested(later)

    def is_spoilt(self, boot: str) -> bool:
        """Return whether a test has left this boot with other weights than the base's."""
        known = self._journal.record.self_test
        return known is not None and known.boot == boot and known.passed is not True

    def _is_due(self, key: str, *, is_tested: bool) -> bool:
        remembered = selftest.as_of_release(self._settings.self_test, is_tested=is_tested)
        now = time.time()
        if remembered is not None and not selftest.is_due(remembered, key, now):
            if self._journal.record.self_test != remembered:
                self._journal.self_tested(remembered)
            return False
        return selftest.is_due(self._journal.record.self_test, key, now)

    async def _run(self, begun: SelfTest, tensors: tuple[Tensor, ...]) -> None:
        start = time.monotonic()
        try:
            found = await self._found(begun, tensors)
        except _LOST as error:
            # An exit is no result; the next boot is tested again.
            _log.warning("Engine lost during its self-test", extra={"error": str(error)})
            found = {}
        except (EngineError, BadAnswerError, SidecarError) as error:
            reason = f"{begun.engine} failed to reload its base model: {error}"[:1000]
            found = {"reason": reason}
            # vLLM's API server outlives its core for a moment.
            await asyncio.sleep(self._settings.poll_s)
            is_alive = await self._engine.is_alive(_ALIVE_S)
            if is_alive and not await have_ranks_exited(self._engine, str(error), _ALIVE_S):
                found["passed"] = False
        seconds = round(time.monotonic() - start, 3)
        self._journal.self_tested(begun.model_copy(update=found | {"seconds": seconds}))

    async def _found(self, begun: SelfTest, tensors: tuple[Tensor, ...]) -> dict[str, object]:
        """Reload, probe and compare; returns the fields of the result."""
        booted = [await self._prover.ask_once() for _ in range(_TIMES)]
        noise = selftest.noise_of(booted)
        start = time.monotonic()
        base = await self._reloaded()
        took_s = time.monotonic() - start
        distance = spread(booted[0].logprobs, base.logprobs)
        shown: dict[str, object] = {"noise": noise, "distance": distance}
        if not selftest.is_faithful(distance, noise):
            reason = selftest.unfaithful(begun.engine, distance, noise)
            return shown | {"passed": False, "reason": reason}
        kinds = selftest.kinds_of(await self._probed(tensors), begun.unreached)
        reloads = len(kinds) + bool(begun.unreached)
        if not selftest.affordable(reloads, took_s, self._settings.self_test_s):
            _log.warning(
                "Sensitivity not tested, RLFLEET_SELF_TEST_S too short",
                extra={"kinds": len(kinds), "reload_s": round(took_s, 3)},
            )
            return shown | {"passed": True}
        moves = {kind: await self._move(base, kind) for kind in kinds}
        for kind in selftest.unmoved(moves, noise):
            # A router's bias may need a large change before it selects other experts.
            moves[kind] = await self._move(base, kind, strength=selftest.FAR)
        if begun.unreached:
            # No answer shows these, but memory does: a rank learns which parameters it can compare.
            await self._move(base, *begun.unreached)
        back = await self._reloaded()
        return shown | self._judged(begun, moves, noise, spread(base.logprobs, back.logprobs))

    async def _probed(self, tensors: tuple[Tensor, ...]) -> list[str]:
        """Return the tensors that an answer depends on: read at boot, and not of a drafter."""
        needs = self._journal.record.needs
        silent = set(() if needs is None else needs.optional)
        model = await in_thread(self._store.checkpoints.boot_model)
        silent |= drafters(model.tensors, model.config)
        return [one.name for one in tensors if one.name not in silent]

    @staticmethod
    def _judged(
        begun: SelfTest, moves: dict[str, float | None], noise: float, left: float
    ) -> dict[str, object]:
        constant = tuple(kind for kind, by in moves.items() if by is None)
        shown = {
            "kinds": len(moves) - len(constant),
            "unreached": tuple(sorted({*begun.unreached, *constant})),
        }
        if not selftest.is_faithful(left, noise):
            why = selftest.unfaithful(begun.engine, left, noise)
            return shown | {"passed": False, "reason": why}
        stale = selftest.unmoved(moves, noise)
        reason = selftest.stale(begun.engine, stale) if stale else None
        return shown | {"passed": not stale, "reason": reason, "stale": stale}

    async def _move(self, base: ProbeAnswer, *kinds: str, strength: float = 1.0) -> float | None:
        """Return the effect of a change of these kinds of tensors on the answers.

        None: they have no other values, such as the zero points of a symmetric quantisation.
        """
        load = await self._load(*kinds, strength=strength)
        if not selftest.is_changed(load):
            return None
        try:
            answer = await self._answer()
        except BadAnswerError:
            # An answer that is not finite is another answer.
            return math.inf
        return spread(base.logprobs, answer.logprobs)

    async def _reloaded(self) -> ProbeAnswer:
        """Reload the base and probe."""
        await self._load()
        return await self._answer()

    async def _answer(self) -> ProbeAnswer:
        async with asyncio.timeout(self._settings.warm_s):
            return await self._prover.ask_once()

    async def _load(self, *changed: str, strength: float = 1.0) -> list[Installed]:
        """Reload the base, with these kinds of its tensors changed."""
        limit_s, directory = self._settings.warm_s, str(self._settings.model_path)
        # Cheap: the store caches the base's headers.
        files = (await in_thread(self._store.checkpoints.boot_model)).files
        async with asyncio.timeout(limit_s):
            known = self._journal.record.self_test
            if known is None or (await self._engine.gate()).boot != known.boot:
                raise EngineRestartedError("the engine restarted during its self-test")
            await self._engine.pause(PauseMode.ABORT, KVCache.RESET)
            load = await self._engine.reload(
                directory, files, limit_s, changed=changed, strength=strength
            )
            await self._engine.flush()
            await self._engine.resume()
            return load

    async def _end(self) -> None:
        try:
            async with asyncio.timeout(self._settings.warm_s):
                await self._engine.end()
        except (EngineError, *_LOST) as error:
            _log.warning("Failed to end the engine", extra={"error": str(error)})
