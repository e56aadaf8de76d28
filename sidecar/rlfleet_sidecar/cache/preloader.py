"""Has the engine read a staged version into its memory while it serves.

Then a change need not read it while clients wait. It must stay true that no prepare and no change
fails or waits for long because of it: without a preload a reload reads the staged files.
"""

import asyncio
import logging

from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.cache.store import VersionStore
from rlfleet_sidecar.checkpoints.check import Checkpoint
from rlfleet_sidecar.errors import EngineError, EngineLostError, EngineRestartedError
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.staging.prepare_job import PrepareJob
from rlfleet_sidecar.state.journal import Journal
from rlfleet_sidecar.state.stage_machine import State
from rlfleet_sidecar.vllm_client import EngineClient

_SLOWEST = 256 * 1024 * 1024
"""Bytes per second: a thread that gives way to a busy engine is slower than a disk."""
_FIRST_S = 0.05
_LAST_S = 1.0
"""Each question interrupts the engine for a moment, so they become rarer."""
_log = logging.getLogger(__name__)


def is_useful(state: State, version: str) -> bool:
    """Return whether a preload saves clients' time: of a serving engine, for other weights."""
    return state.stage is Stage.OPEN and state.installed != version


class Preloader:
    """Starts preloads and waits for them."""

    def __init__(
        self,
        settings: SidecarSettings,
        engine: EngineClient,
        store: VersionStore,
        journal: Journal,
    ) -> None:
        self._patience_s = settings.preload_s
        self._engine = engine
        self._store = store
        self._journal = journal

    async def preload(self, work: PrepareJob) -> None:
        """Return when the engine holds the version, cannot, or takes too long.

        Raises SupersededError, like any part of a prepare.
        """
        checkpoint = self._store.present(work.version)
        if checkpoint is None or not self._is_due(work.version):
            return
        fields: dict[str, object] = {"version": work.version}
        patience_s = self._patience_s + checkpoint.nbytes / _SLOWEST
        limit_s = min(patience_s, max(0.0, work.left_s))
        try:
            async with asyncio.timeout(limit_s):
                why = await self._outcome(work, checkpoint)
        except TimeoutError:
            why = f"not finished within {limit_s:.1f} s"
        except (EngineError, EngineLostError, EngineRestartedError) as error:
            why = str(error)
        if why is not None:
            _log.info("Version not preloaded", extra=fields | {"error": why})

    def _is_due(self, version: str) -> bool:
        return self._patience_s > 0 and is_useful(self._journal.state, version)

    async def _outcome(self, work: PrepareJob, checkpoint: Checkpoint) -> str | None:
        """Have every rank read it; returns why one of them did not."""
        if (await self._engine.gate()).boot != self._journal.state.boot:
            raise EngineRestartedError("the engine restarted")
        ranks = await self._engine.preload(str(checkpoint.directory), checkpoint.files)
        rest_s = _FIRST_S
        while any(rank.is_reading for rank in ranks):
            await work.rest(rest_s)
            if not self._is_due(work.version):
                return "a change began"
            rest_s = min(2 * rest_s, _LAST_S)
            ranks = await self._engine.preloaded()
        return next((rank.why for rank in ranks if rank.why is not None), None)
