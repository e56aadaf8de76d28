"""Prepares versions while the engine serves, one at a time.

A prepare waits until its version is complete, then checks and reads it. A repeat joins the
prepare under way; another one supersedes it, because only the last request counts. It never
delays a change of weights.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from rlfleet_contract.paths import BASE_VERSION
from rlfleet_contract.single_flight import SingleFlight
from rlfleet_contract.worker.commands import PrepareRequest, Verb
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Progress, Running
from rlfleet_sidecar.cache.store import VersionStore
from rlfleet_sidecar.errors import SidecarError, internal
from rlfleet_sidecar.proof.selftest import demand_reloadable
from rlfleet_sidecar.staging.prepare_job import LEAVE_S, PrepareJob, SupersededError
from rlfleet_sidecar.state.journal import Journal

_REMEMBERED = 8
_AWAITED = frozenset({Code.VERSION_NOT_FOUND, Code.CHECKPOINT_INCOMPLETE})
_log = logging.getLogger(__name__)


class _Key(NamedTuple):
    operation: str
    version: str
    digest: str | None


class _Current(NamedTuple):
    key: _Key
    work: PrepareJob
    task: asyncio.Task[None]


class Preparation:
    """The prepare under way, if there is one."""

    def __init__(
        self,
        store: VersionStore,
        journal: Journal,
        needed: Callable[[], frozenset[str]],
        yields: Callable[[], bool],
        preload: Callable[[PrepareJob], Awaitable[None]],
    ) -> None:
        self._store = store
        self._journal = journal
        self._needed = needed
        """Returns the versions that must not be evicted."""
        self._yields = yields
        """Returns whether a change is under way, which gets the disk alone because clients wait."""
        self._preload = preload
        """Has the engine read a staged version while it serves."""
        self._current: _Current | None = None
        self._flight = SingleFlight[PrepareJob]()
        self._took: dict[tuple[str, str], float] = {}

    @property
    def progress(self) -> Progress | None:
        """The progress of the prepare under way."""
        return None if self._current is None else self._current.work.progress

    @property
    def running(self) -> Running | None:
        """The prepare under way, for the report."""
        if self._current is None:
            return None
        key = self._current.key
        return Running(verb=Verb.PREPARE, operation=key.operation, version=key.version)

    async def join(self, request: PrepareRequest) -> None:
        """Prepare, or wait for the same prepare under way."""
        key = _Key(request.operation, request.version, request.digest)
        if self._current is None or self._current.key != key:
            before = self._current
            work = PrepareJob(request.version, request.timeout_s, self._yields)
            if before is not None:
                before.work.supersede(
                    f"superseded by a prepare of {request.version} (operation {request.operation})"
                )
            task = self._flight.begin(work, lambda: self._prepare(request, work, before))
            self._current = _Current(key, work, task)
        await asyncio.shield(self._current.task)

    def took_s(self, operation: str, version: str) -> float:
        """Return how long check and copy took for an operation, without the wait."""
        return self._took.get((operation, version), 0.0)

    async def stop(self) -> None:
        """End the prepare under way."""
        if self._current is not None:
            task = self._current.task
            self._current.work.supersede("cancelled: the sidecar is shutting down; retry")
            await asyncio.wait({task}, timeout=LEAVE_S)
            # Callers that wait for a hanging one would keep the process from ending.
            task.cancel()

    async def _prepare(
        self, request: PrepareRequest, work: PrepareJob, before: _Current | None
    ) -> None:
        if before is not None:
            await asyncio.wait({before.task}, timeout=LEAVE_S)
        try:
            work.demand_wanted()
            demand_reloadable(self._journal.record.self_test, request.version, BASE_VERSION)
            await self._until_present(request, work)
        except SupersededError:
            raise
        except SidecarError as error:
            error.operation, error.version = request.operation, request.version
            self._journal.refused(error.problem())
            raise
        except Exception as error:
            _log.exception("Prepare failed by an internal error")
            own = internal(error)
            own.operation, own.version = request.operation, request.version
            self._journal.refused(own.problem())
            raise own from error
        finally:
            if self._current is not None and self._current.work is work:
                self._current = None

    async def _until_present(self, request: PrepareRequest, work: PrepareJob) -> None:
        self._store.note_served(self._journal.state.proved)
        wait_s = request.timeout_s if request.wait_s is None else request.wait_s
        end = time.monotonic() + min(wait_s, request.timeout_s)
        while True:
            begun = time.monotonic()
            try:
                prepare = partial(self._store.prepare, work, request, self._needed)
                is_new = await work.carried_out(prepare)
            except SidecarError as error:
                if error.code not in _AWAITED or time.monotonic() > end:
                    raise
                work.waiting_for = error.message
                await work.rest(self._store.look_s)
            else:
                break
        if is_new:
            # Only the newest few are ever read.
            self._took = dict([*self._took.items()][-_REMEMBERED:])
            self._took[request.operation, request.version] = time.monotonic() - begun
        await self._preload(work)
        self._journal.prepared(request.version)
