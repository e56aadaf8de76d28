"""Probes an engine behind its closed gate for a proof; proof/evidence.py evaluates it.

Each boot is calibrated once, before its first proof (proof/calibration.py). The last proof is
kept, so that a reload without effect can be detected.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from uuid import uuid4

from rlfleet_contract.engine.rank_report import ReadBack
from rlfleet_contract.worker.proof import Evidence, Proof
from rlfleet_sidecar.cache.store import VersionStore
from rlfleet_sidecar.errors import EngineError, SidecarError
from rlfleet_sidecar.proof import evidence, probe
from rlfleet_sidecar.proof.calibration import (
    COMPANIES,
    LENGTHS,
    Calibration,
    affordable,
    companies,
    gauge,
    unmeasured,
)
from rlfleet_sidecar.proof.evidence import LoadedWeights
from rlfleet_sidecar.proof.probe import ProbeAnswer
from rlfleet_sidecar.proof.selftest import evidence_of
from rlfleet_sidecar.proof.trainer_probe import TrainerProbe
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.state.journal import Journal
from rlfleet_sidecar.state.required_tensors import reported_by
from rlfleet_sidecar.timeouts import in_thread
from rlfleet_sidecar.vllm_client import EngineClient

_TIMES = 2
_COPIES = 3
"""Of the prompt in a proof's one request: at a near tie two of three must agree."""
Asking = asyncio.Task[tuple[ProbeAnswer, ...]]
_log = logging.getLogger(__name__)


class Prover:
    """Makes the proofs of one worker."""

    def __init__(
        self, settings: SidecarSettings, engine: EngineClient, store: VersionStore, journal: Journal
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._store = store
        self._journal = journal
        self._load: LoadedWeights | None = None

    async def warm_up(self, boot: str) -> None:
        """Have a new engine answer its first prompt, and calibrate it. The caller has a timeout.

        The first answer compiles kernels. Memory is read for a comparison after a reload.
        """
        await self._learn(boot)
        await self._alike(LENGTHS[0])
        begun = time.monotonic()
        await self._alike(LENGTHS[0])
        length = affordable((time.monotonic() - begun) / _COPIES, self._settings.probe_s)
        begun = time.monotonic()
        asked = [await self._alike(length) for _ in range(_TIMES)]
        answer_s = (time.monotonic() - begun) / _TIMES / _COPIES
        # The smallest batch twice, each other that the time allows once.
        sizes = (COMPANIES[0], *companies(answer_s, self._settings.gauge_s))
        batched = [await self._ask(length, company) for company in sizes]
        await self._engine.read_back()
        alone, *others = zip(*asked, strict=True)
        self._journal.gauged(gauge(boot, alone, [*chain.from_iterable(others), *batched]))

    async def _learn(self, boot: str) -> None:
        """Record the tensors that the boot has read, which a version must hold."""
        try:
            ranks = await self._engine.consumed()
            model = await in_thread(self._store.checkpoints.boot_model)
            needs = reported_by(boot, model.tensors.keys(), ranks)
        except (EngineError, SidecarError, ValueError) as error:
            _log.warning("Tensors of the boot unknown", extra={"error": str(error)})
            return
        if needs is not None:
            self._journal.learned(needs)

    async def ask_once(self) -> ProbeAnswer:
        """Return the uncached answer to this engine's prompt."""
        known = self._journal.record.gauge
        return await self._ask(LENGTHS[0] if known is None else known.length)

    def loaded(self, load: LoadedWeights | None) -> None:
        """Set the reload that the next proof refers to; None: no checkpoint's."""
        self._load = load

    @asynccontextmanager
    async def asking(self, boot: str) -> AsyncIterator[Asking]:
        """Send the probe at the beginning of this context, and wait for it at most to its end.

        A paused engine keeps it, and computes all copies in its first pass.
        """
        prompts = await self._copies(self._gauge(boot).length)
        asking = asyncio.create_task(self._answers_to(prompts, wanted=_COPIES))
        try:
            await asyncio.sleep(0)  # It is sent before anything in the context.
            yield asking
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    @property
    def may_admit(self) -> bool:
        """Whether the next proof's probe is all that it asks of the engine."""
        return self._load is not None and self._load.probe is None

    async def prove(self, version: str, boot: str, expected: Proof | None, asking: Asking) -> Proof:
        """Return the proof of the engine's weights; raises SidecarError if a layer fails."""
        gauge = self._gauge(boot)
        answers = await asking
        evidence.demand_steady(answers, gauge.tolerance)
        answer = answers[0]
        load = self._load
        if load is not None and (load.version, load.boot) != (version, boot):
            load = None
        # Last, because a reload's memory is still being read while the engine answers.
        read = await self._memory(load)
        layers = () if load is None else evidence.shown_by(load, read, answer, gauge.noise)
        shown = Proof(
            version=version,
            boot=boot,
            verified_by=(*layers, Evidence.PROBE),
            tensors=None if load is None else load.digest,
            parameters=() if None in read else tuple(one.digest for one in read if one),
            read_share=evidence.share_of(read),
            tokens=probe.digest(answer.tokens),
            logprobs=answer.logprobs,
            tolerance=gauge.tolerance,
        )
        more = [*evidence.demand_alike(expected, shown)]
        if load is not None:
            more += evidence_of(self._journal.record.self_test)
        if load is not None and load.probe is not None:
            more.append(await self._as_the_trainer(load.probe))
        return shown.model_copy(update={"verified_by": (*shown.verified_by, *more)})

    async def _as_the_trainer(self, wanted: TrainerProbe) -> Evidence:
        """Compare the engine's answer to the trainer's prompt with the trainer's."""
        (answer,) = await self._answers_to([wanted.tokens])
        wanted.demand(answer.logprobs)
        return Evidence.TRAINER

    async def _memory(self, load: LoadedWeights | None) -> list[ReadBack | None]:
        """Return each rank's memory: as a reload left it, or read now without one."""
        if load is None:
            return await self._engine.read_back()
        if any(rank.reads_memory for rank in load.ranks):
            return await self._engine.reloaded()
        return [rank.parameters for rank in load.ranks]

    def _gauge(self, boot: str) -> Calibration:
        known = self._journal.record.gauge
        return known if known is not None and known.boot == boot else unmeasured(boot)

    async def _alike(self, length: int) -> tuple[ProbeAnswer, ...]:
        """Return the answers to copies of the prompt in one batch.

        vLLM computes each: it reads no prefix cache for a prompt whose logprobs are wanted.
        """
        return await self._answers_to(await self._copies(length), wanted=_COPIES)

    async def _copies(self, length: int) -> list[tuple[int, ...]]:
        vocabulary = await in_thread(self._store.checkpoints.vocabulary)
        return [probe.prompt(vocabulary, length)] * _COPIES

    async def _ask(self, length: int, company: int = 0) -> ProbeAnswer:
        """Return the answer to the prompt, in a batch with ``company`` others."""
        vocabulary = await in_thread(self._store.checkpoints.vocabulary)
        prompts = [probe.prompt(vocabulary, length, place) for place in range(company + 1)]
        (answer,) = await self._answers_to(prompts)
        return answer

    async def _answers_to(
        self, prompts: Sequence[Sequence[int]], wanted: int = 1
    ) -> tuple[ProbeAnswer, ...]:
        settings = self._settings
        salt = f"rlfleet-probe-{uuid4().hex}"
        body = probe.request(prompts, settings.probe_tokens, salt)
        try:
            answer = await self._engine.complete(body)
        except EngineError as error:
            # vLLM returns 400 if a logprob is not finite, because JSON cannot represent it.
            raise probe.BadAnswerError(f"the probe failed: {error}") from error
        return probe.read(answer, prompts, settings.probe_tokens, wanted)
