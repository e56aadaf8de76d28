"""Asks an engine behind its closed gate what its weights show; proof/evidence.py judges.

Each start of an engine is measured once, before it proves anything (proof/calibration.py). What the
probe said last is remembered, so that after a reload it can be told whether it changed.
"""

import logging
import time
from collections.abc import Sequence
from uuid import uuid4

from rlfleet_contract.worker.proof import Evidence, Proof
from rlfleet_sidecar.cache.store import Store
from rlfleet_sidecar.errors import EngineError, SidecarError
from rlfleet_sidecar.proof import evidence, probe
from rlfleet_sidecar.proof.calibration import (
    COMPANIES,
    LENGTHS,
    Gauge,
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
from rlfleet_sidecar.vllm_client import Engine

_TIMES = 2
_log = logging.getLogger(__name__)


class Prover:
    """Makes the proofs of one worker."""

    def __init__(
        self, settings: SidecarSettings, engine: Engine, store: Store, journal: Journal
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._store = store
        self._journal = journal
        self._load: LoadedWeights | None = None

    async def warm_up(self, boot: str) -> None:
        """Have a new engine answer a first time, and measure it; takes the time it takes.

        The first answer compiles kernels, and what stands in memory now tells later what
        a reload changed.
        """
        await self._learn(boot)
        await self._ask(LENGTHS[0])
        begun = time.monotonic()
        await self._ask(LENGTHS[0])
        length = affordable(time.monotonic() - begun, self._settings.probe_s)
        begun = time.monotonic()
        alone = [await self._ask(length) for _ in range(_TIMES)]
        answer_s = (time.monotonic() - begun) / _TIMES
        # Twice in the smallest company, once in each that the time allows.
        sizes = (COMPANIES[0], *companies(answer_s, self._settings.gauge_s))
        beside = [await self._ask(length, company) for company in sizes]
        await self._engine.read_back()
        self._journal.gauged(gauge(boot, alone, beside))

    async def _learn(self, boot: str) -> None:
        """Ask what the load read: a version must hold that."""
        try:
            ranks = await self._engine.consumed()
            names = await in_thread(self._store.boot_names)
            needs = reported_by(boot, names, ranks)
        except (EngineError, SidecarError, ValueError) as error:
            _log.warning("The engine did not report what it read", extra={"error": str(error)})
            return
        if needs is not None:
            self._journal.learned(needs)

    async def ask_once(self) -> ProbeAnswer:
        """Ask the prompt that fits this engine, uncached."""
        known = self._journal.gauge
        return await self._ask(LENGTHS[0] if known is None else known.length)

    def loaded(self, load: LoadedWeights | None) -> None:
        """Note a reload that is to be proved; None: what comes is no checkpoint's."""
        self._load = load

    async def prove(self, version: str, boot: str, expected: Proof | None) -> Proof:
        """Prove what the engine holds; raises what speaks against it."""
        gauge = self._gauge(boot)
        answer = await self._steady_answer(gauge)
        load = self._load
        if load is None or (load.version, load.boot) != (version, boot):
            shown = await self._unloaded(version, boot, answer, gauge)
        else:
            shown = _proof(load, answer, gauge)
        more = [*evidence.demand_alike(expected, shown)]
        if shown.checkpoint is not None:
            more += evidence_of(self._journal.self_test)
        if load is not None and shown.checkpoint is not None and load.probe is not None:
            more.append(await self._as_the_trainer(load.probe))
        return shown.model_copy(update={"verified_by": (*shown.verified_by, *more)})

    async def _as_the_trainer(self, wanted: TrainerProbe) -> Evidence:
        """Put the trainer's own prompt to the engine and compare the answers."""
        wanted.demand((await self._told([wanted.tokens])).logprobs)
        return Evidence.TRAINER

    async def _unloaded(self, version: str, boot: str, answer: ProbeAnswer, gauge: Gauge) -> Proof:
        """Tell what an engine shows that holds what it booted with."""
        read = await self._engine.read_back()
        return Proof(
            version=version,
            boot=boot,
            verified_by=(Evidence.PROBE,),
            parameters=() if None in read else tuple(one.digest for one in read if one),
            read_share=evidence.share_of(read),
            tokens=probe.digest(answer.tokens),
            logprobs=answer.logprobs,
            tolerance=gauge.tolerance,
        )

    def _gauge(self, boot: str) -> Gauge:
        known = self._journal.gauge
        return known if known is not None and known.boot == boot else unmeasured(boot)

    async def _steady_answer(self, gauge: Gauge) -> ProbeAnswer:
        """Ask twice, uncached: a sound engine answers the same. A third time at a near tie."""
        answers = [await self._ask(gauge.length), await self._ask(gauge.length)]
        if not evidence.steady(answers, gauge.tolerance):
            answers.append(await self._ask(gauge.length))
            evidence.steady(answers, gauge.tolerance)
        return answers[0]

    async def _ask(self, length: int, company: int = 0) -> ProbeAnswer:
        """Ask one prompt, beside others if there shall be company."""
        vocabulary = await in_thread(self._store.vocabulary)
        return await self._told(
            [probe.prompt(vocabulary, length, place) for place in range(company + 1)]
        )

    async def _told(self, prompts: Sequence[Sequence[int]]) -> ProbeAnswer:
        settings = self._settings
        salt = f"rlfleet-probe-{uuid4().hex}"
        body = probe.request(prompts, settings.probe_tokens, salt)
        try:
            told = await self._engine.complete(body)
        except EngineError as error:
            # vLLM answers 400 when a logprob is not finite: it cannot be told in JSON.
            raise probe.BadAnswerError(f"the probe was not answered: {error}") from error
        return probe.read(told, prompts, settings.probe_tokens)


def _proof(load: LoadedWeights, answer: ProbeAnswer, gauge: Gauge) -> Proof:
    read = [rank.parameters for rank in load.ranks]
    return Proof(
        version=load.version,
        boot=load.boot,
        verified_by=(*evidence.shown_by(load, answer, gauge.noise), Evidence.PROBE),
        checkpoint=load.digest,
        parameters=() if None in read else tuple(one.digest for one in read if one),
        read_share=evidence.share_of(read),
        tokens=probe.digest(answer.tokens),
        logprobs=answer.logprobs,
        tolerance=gauge.tolerance,
    )
