"""Carries out commands: one change at a time, to the end, and cleans up after a failure.

A prepare runs in parallel (cache/prepare.py). state/preconditions.py decides whether a command
is allowed, steps.py has its steps. A rejection changes nothing. After a failure before the
reload the engine resumes with its old weights; after one from the reload on it is in doubt and
gets no traffic.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from typing import Any

from rlfleet_contract.worker.commands import (
    ChangeCommand,
    Command,
    FlushRequest,
    PauseRequest,
    PrepareRequest,
    ReloadRequest,
    ResumeRequest,
    UpdateRequest,
    Verb,
    VerifyRequest,
)
from rlfleet_contract.worker.proof import Proof
from rlfleet_contract.worker.report import Change, Running, Stage, Timings, WorkerReport
from rlfleet_sidecar.cache.prepare import Preparation
from rlfleet_sidecar.cache.store import VersionStore
from rlfleet_sidecar.change.single_flight import Flight, FlightKey
from rlfleet_sidecar.change.steps import Steps
from rlfleet_sidecar.change.ttl import ChangeTTL
from rlfleet_sidecar.errors import SidecarError, about, internal
from rlfleet_sidecar.proof.evidence import demand_alike, demand_as_proved
from rlfleet_sidecar.state.journal import Journal
from rlfleet_sidecar.state.news import News
from rlfleet_sidecar.state.preconditions import CommandVerdict, judge, judge_update
from rlfleet_sidecar.state.stage_machine import Rescue, State
from rlfleet_sidecar.state.store_view import StoreView


class Stopwatch:
    """Sums the time of each step, until another operation begins."""

    def __init__(self) -> None:
        self._operation: str | None = None
        self._taken: dict[Verb, float] = {}

    def begin(self, operation: str) -> None:
        """Measure a command of this operation; another one's times are discarded."""
        if operation != self._operation:
            self._operation, self._taken = operation, {}

    def reset(self) -> None:
        """Begin a window: times of an earlier window of the operation do not count."""
        self._taken = {}

    @contextmanager
    def measure(self, verb: Verb) -> Iterator[None]:
        """Add the time inside to the step's."""
        begun = time.monotonic()
        before = self._taken.get(verb, 0.0)
        try:
            yield
        finally:
            self._taken[verb] = before + time.monotonic() - begun

    def change(self, command: Command, **found: float) -> Change:
        """Return the change that has just succeeded, with its times."""
        taken = {f"{verb.lower()}_s": round(taken_s, 6) for verb, taken_s in self._taken.items()}
        return Change(
            operation=command.operation,
            version=command.version,
            finished_at=time.time(),
            timings=Timings.model_validate(
                taken | {name: round(value, 6) for name, value in found.items()}
            ),
        )


WeightsRequest = PrepareRequest | ChangeCommand | UpdateRequest
_CHANGING = frozenset({Stage.PAUSED, Stage.LOADING, Stage.LOADED, Stage.PROVED})
_UPDATE = "Update"
_RESCUE = "Rescue"
_log = logging.getLogger(__name__)


class Executor:
    """The commands and the report of a worker."""

    def __init__(
        self,
        steps: Steps,
        store: VersionStore,
        journal: Journal,
        leadership: ChangeTTL,
        pod_uid: str = "",
        in_store: Callable[[], StoreView] = StoreView,
        token_revision: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._in_store, self._token_revision = in_store, token_revision
        self._steps = steps
        self._act: Mapping[type[Command], Callable[[Any], Awaitable[None]]] = {
            PauseRequest: steps.pause,
            FlushRequest: steps.flush,
            ReloadRequest: steps.reload,
            VerifyRequest: steps.verify,
            ResumeRequest: steps.resume,
        }
        self._pod_uid = pod_uid or None
        self._serials = count(1)
        self._store = store
        self._journal = journal
        self._leadership = leadership
        self._running: Running | None = None
        self._stopwatch = Stopwatch()
        self._commanded: str | None = None
        """The version of the change under way."""
        self.flight = Flight()
        self.preparation = Preparation(
            store, journal, self._needed, self._is_changing, steps.preloader.preload
        )

    async def carry_out(self, request: WeightsRequest) -> WorkerReport:
        """Carry out the command; returns the worker's report."""
        with about(request):
            if isinstance(request, PrepareRequest):
                self._leadership.renew()
                await self.preparation.join(request)
                return self.report()
            key = FlightKey(_word(request), request.operation, request.version)
            return await self.flight.join(key, lambda: self._carry_out(request))

    async def rescue(self, rescue: Rescue) -> None:
        """End a change without a driver; any command has precedence."""
        key = FlightKey(_RESCUE, rescue, self._journal.state.proved or "")
        _log.warning("Sidecar acts on its own", extra={"how": rescue})
        await self.flight.join(key, lambda: self._carry_out_rescue(rescue))

    def report(self) -> WorkerReport:
        """Return the worker's report."""
        journal, state, gate = self._journal, self._journal.state, self._steps.gate
        is_up = state.stage is not Stage.DOWN
        prepared = None if state.prepared is None else self._store.present(state.prepared)
        return WorkerReport(
            pod_uid=self._pod_uid,
            session=journal.session,
            serial=next(self._serials),
            boot=state.boot if is_up else None,
            stage=state.stage,
            proved=state.proved if is_up else None,
            proof=state.proof if is_up else None,
            installed=state.installed if is_up else None,
            prepared=None if prepared is None else prepared.version,
            prepared_bytes=None if prepared is None else prepared.nbytes,
            progress=self.preparation.progress,
            staged=self._store.staged(),
            running=self._running or self._steps.adapters.running or self.preparation.running,
            in_flight=0 if gate is None else gate.waiting + gate.in_flight,
            paused_s=_rounded(journal.paused_s),
            expires_s=_rounded(self._leadership.rest_s),
            operation=self._leadership.operation,
            flushed=self._steps.flushed,
            epoch=journal.seen.epoch,
            refusal=journal.record.refusal,
            failure=journal.record.failure,
            exits=journal.record.exits,
            last_change=journal.record.last_change,
            adapters=self._steps.adapters.reports(state.boot if is_up else None),
            self_test=journal.record.self_test,
            token_revision=self._token_revision(),
            **self._in_store()._asdict(),
        )

    @property
    def news(self) -> News:
        """Announces that the report may have changed."""
        return self._journal.news

    @property
    def serving(self) -> bool:
        """Whether this worker may take traffic."""
        return self._journal.state.serving

    async def _carry_out(self, request: ChangeCommand | UpdateRequest) -> WorkerReport:
        self._stopwatch.begin(request.operation)
        commands = self._plan(request)
        if isinstance(request, UpdateRequest) and any(
            isinstance(c, PauseRequest) for c in commands
        ):
            # So a rejection of the reload comes before the pause.
            await self._steps.demand_present(request.version, request.timeouts.pause_s)
        self._commanded = request.version
        self._steps.opens = any(isinstance(command, ResumeRequest) for command in commands)
        current: ChangeCommand | None = None
        epoch = None if request.fence is None else request.fence.epoch
        self._leadership.take(request.operation, epoch, getattr(request, "ttl_s", None))
        try:
            for current in commands:
                if self._is_due(current):
                    with self._timed(current):
                        await self._act[type(current)](current)
        except SidecarError as error:
            await self._end_failed(current, error)
            raise
        except Exception as error:
            _log.exception("Command failed by an internal error")
            own = internal(error)
            await self._end_failed(current, own)
            raise own from error
        finally:
            self._running = None
            self._leadership.renew()
            if self._journal.state.stage not in _CHANGING:
                self._commanded = None
        return self.report()

    def _plan(self, request: ChangeCommand | UpdateRequest) -> Sequence[ChangeCommand]:
        """Return the steps of a command; raises without an effect if it is not allowed."""
        state = self._state(request.version)
        if not isinstance(request, UpdateRequest):
            judge(state, request.VERB, request.version)
            if isinstance(request, VerifyRequest) and state.proved == request.version:
                demand_alike(request.expected, state.proof)
            return (request,)
        self._repeat_failure(request)
        verbs = judge_update(state, request.version, request.through)
        if state.proved == request.version:
            self._refuse_rewritten(request, state.proof)
            demand_alike(request.expected, state.proof)
        elif Verb.RELOAD in verbs:
            self._refuse_rewritten(request, request.expected)
        return request.steps(verbs)

    def _repeat_failure(self, request: UpdateRequest) -> None:
        """Raise the same failure again for a repeat of a command that cannot succeed."""
        failure = self._journal.record.failure
        if failure is None or failure.retryable or self._journal.state.stage is not Stage.DOUBT:
            return
        if (failure.operation, failure.version) == (request.operation, request.version):
            raise SidecarError(failure.code, failure.message)

    def _refuse_rewritten(self, request: UpdateRequest, proof: Proof | None) -> None:
        """Raise for a version whose copy has other bytes than those proved, here or by a peer.

        The sequence loads nothing for a proved name, so old weights would count as new ones. Other
        bytes than a peer's could not be proved.
        """
        found = self._store.present(request.version)
        try:
            demand_as_proved(proof, None if found is None else found.digest)
        except SidecarError as error:
            error.operation, error.version = request.operation, request.version
            self._journal.refused(error.problem())
            raise

    def _state(self, version: str) -> State:
        """Return the state for a command with this version.

        The version of the change under way counts as prepared even after another prepare. A
        version that is no longer present does not.
        """
        state = self._journal.state
        is_prepared = version in {state.prepared, self._commanded}
        is_present = is_prepared and self._store.present(version) is not None
        return replace(state, prepared=version if is_present else None)

    def in_use(self) -> frozenset[str]:
        """Return the versions that this worker serves, holds or takes up."""
        prepared, running = self._journal.state.prepared, self.preparation.running
        found = {prepared, None if running is None else running.version}
        return self._needed() | {version for version in found if version is not None}

    def _needed(self) -> frozenset[str]:
        """Return the versions that a change or the engine may still need."""
        state = self._journal.state
        found = {state.proved, state.installed, self._commanded}
        return frozenset(version for version in found if version is not None)

    def _is_changing(self) -> bool:
        return self.flight.key is not None

    def _is_due(self, command: ChangeCommand) -> bool:
        verdict = judge(self._state(command.version), command.VERB, command.version)
        return verdict is CommandVerdict.DO

    @contextmanager
    def _timed(self, command: ChangeCommand) -> Iterator[None]:
        """Report a step as running and measure it."""
        verb = command.VERB
        self._running = Running(verb=verb, operation=command.operation, version=command.version)
        before = self._journal.state.stage
        if verb is Verb.PAUSE and self._journal.paused_s is None:
            self._stopwatch.reset()
        with self._stopwatch.measure(verb):
            yield
        if verb is Verb.RESUME and before is Stage.PROVED:
            prepare_s = self.preparation.took_s(command.operation, command.version)
            change = self._stopwatch.change(
                command,
                prepare_s=prepare_s,
                window_s=self._journal.window_s,
                withheld_s=self._journal.withheld_s,
                preloaded=self._steps.preloaded,
            )
            self._journal.changed(change)

    async def _end_failed(self, command: ChangeCommand | None, error: SidecarError) -> None:
        """Record the failure, undo the pause if possible, and poll the engine."""
        if command is None:
            return
        error.operation, error.version = command.operation, command.version
        has_exited = await self._has_exited(command, str(error))
        if has_exited:
            error.message = f"the engine exited while {command.version} was loading: {error}"
        self._journal.failed(error.problem(), has_exited=has_exited)
        is_undoable = not isinstance(command, VerifyRequest | ResumeRequest)
        if is_undoable and self._journal.state.stage is Stage.PAUSED:
            try:
                await self._steps.undo()
            except SidecarError:
                # No command may follow: a driver sends none to a worker that has proved nothing.
                self._leadership.give_up()
        await self._end_if_hung()
        with suppress(TimeoutError):
            self._steps.observe(await self._steps.look())

    async def _end_if_hung(self) -> None:
        """End an engine that is still paused and whose core does not answer."""
        if self._journal.state.stage is Stage.PAUSED and await self._steps.is_hung():
            _log.error("Engine hangs in a pause, ending it")
            with suppress(SidecarError):
                await self._steps.end()

    async def _has_exited(self, command: ChangeCommand, failure: str) -> bool | None:
        """Return whether the engine's process exited during a load; None without a load."""
        if (
            not isinstance(command, ReloadRequest | VerifyRequest)
            or self._journal.record.loading is None
        ):
            return None
        return await self._steps.has_exited(failure)

    async def _carry_out_rescue(self, rescue: Rescue) -> WorkerReport:
        match rescue:
            case Rescue.UNDO:
                try:
                    await self._steps.undo()
                except SidecarError:
                    await self._end_if_hung()
                    raise
            case Rescue.OPEN:
                await self._open()
            case Rescue.END:
                await self._steps.end()
            case Rescue.ALIGN:
                await self._steps.align()
            case Rescue.TURN_AWAY:
                await self._steps.turn_away()
        return self.report()

    async def _open(self) -> None:
        """Open the gate over the proved version of a change without a driver."""
        lead, version = self._journal.lead, self._journal.state.proved or ""
        operation = _RESCUE if lead is None else lead.operation
        command = ResumeRequest(operation=operation, version=version)
        try:
            with self._timed(command):
                await self._steps.resume(command)
        finally:
            self._running = None


def _word(request: ChangeCommand | UpdateRequest) -> str:
    if isinstance(request, UpdateRequest):
        return f"{_UPDATE} through {request.through}"
    return request.VERB


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
