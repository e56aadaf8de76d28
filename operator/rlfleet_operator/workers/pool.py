"""The connections to one fleet's sidecars: polls their state and sends them commands.

Knows nothing of the plan. A contact belongs to one pod by UID, so a report of an earlier pod of
the same name never counts for the new one.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

from rlfleet_contract.worker.commands import Command, Verb
from rlfleet_contract.worker.fence import Place
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Target, WorkerReport
from rlfleet_contract.worker.retention import Needs
from rlfleet_operator import metrics
from rlfleet_operator.clock import WallClock
from rlfleet_operator.core.backoff import Backoff
from rlfleet_operator.core.model.actions import Prepare, WorkerCommand
from rlfleet_operator.core.model.worker_pod import Pod
from rlfleet_operator.core.model.world import Worker
from rlfleet_operator.crd.rollout_spec import RolloutSpec
from rlfleet_operator.errors import OperatorError, WorkerProblem
from rlfleet_operator.workers.certificate import SidecarCertificate
from rlfleet_operator.workers.client import client_of, demand_of, place
from rlfleet_operator.workers.connection import PATIENCE_S, Watch, WorkerConnection
from rlfleet_operator.workers.requests import HIGHEST_EPOCH, CommandNumbers, DrivenFleet
from rlfleet_operator.workers.silence import SilenceWatch

_log = logging.getLogger(__name__)

_REST_S = 300.0
"""Interval of heartbeats to a watched worker that serves, because they renew nothing."""
_REWATCH = Backoff(1.0, 60.0, well_s=60.0)
"""Between two attempts to watch: a sidecar of an earlier release cannot be watched."""
_SILENT_AT_ONCE = 16


class WorkerPool:
    """The connections to one fleet's sidecars; wakes the driver when a report changes."""

    def __init__(
        self,
        limit: asyncio.Semaphore,
        poll_s: float,
        wake: Callable[[], None],
        token: Callable[[], Awaitable[str]],
        renew: Callable[[], Awaitable[object]],
        taken: Callable[[], DrivenFleet | None],
        heartbeat_epoch: Callable[[], int | None],
        patience_s: float = PATIENCE_S,
        about: Mapping[str, str] = MappingProxyType({}),
        certificate: Callable[[Pod], SidecarCertificate | None] = lambda _: None,
    ) -> None:
        """Share ``limit`` with other fleets; ``renew`` reads the admin token again.

        ``taken`` returns the fleet and its epoch while this process drives it. With
        ``heartbeat_epoch`` state requests renew the TTL of changes. ``about`` is in every log line.
        ``certificate`` returns what a pod's sidecar is checked by, None for plain HTTP.
        """
        self._patience_s, self._about = patience_s, about
        self._silent = asyncio.Semaphore(_SILENT_AT_ONCE)
        """Limits state requests to silent workers, apart from those to all others."""
        self._limit, self._poll_s, self._wake = limit, poll_s, wake
        self._token, self._renew, self._taken = token, renew, taken
        self._certificate = certificate
        self._heartbeat_epoch = heartbeat_epoch
        self._numbers, self._wall = CommandNumbers(), WallClock()
        self._by_name: dict[str, WorkerConnection] = {}
        self._silence = SilenceWatch(self._by_name)
        self._restless: set[str] = set()
        self._target: Target | None = None
        self._beats = False
        self._lookers: dict[str, str | None] = {}
        """The workers that look for the newest version, with what the fleet has taken up."""
        self._needs: dict[str, Needs] = {}
        """What the fleet needs, for the worker that looks for versions beyond it."""

    async def follow(
        self, pods: Mapping[str, Pod], port: int, target: Target | None = None
    ) -> None:
        """Keep one contact for every pod with an address, and send them the target."""
        self._ask_for(target)
        self._silence.begin()
        for name, contact in list(self._by_name.items()):
            pod = pods.get(name)
            if pod is None or (pod.uid, pod.answers_at) != (contact.pod.uid, contact.pod.address):
                await self._drop(name)
            else:
                contact.see(pod)
                if contact.asking is not None and contact.asking.done():
                    # Only a defect ends it: raise it in the driver's loop.
                    contact.asking.result()
        for name, pod in pods.items():
            if name not in self._by_name and pod.answers_at is not None:
                client = client_of(pod, port, self._limit, self._certificate(pod))
                contact = WorkerConnection(
                    client, pod, patience_s=self._patience_s, over=self._place()
                )
                self._by_name[name] = contact
                contact.asking = self._spawn(contact, self._keep_asking(contact))
                self._spawn(contact, self._keep_watching(contact))

    def look(self, lookers: dict[str, str | None], needs: Needs | None) -> None:
        """Have workers look for the newest version, and one for versions beyond the needs."""
        for name in dict(lookers.items() - self._lookers.items()).keys() & self._by_name.keys():
            self._by_name[name].hurried.set()
        self._lookers = lookers
        asked = {c.pod.ordinal: c.pod.name for c in self._by_name.values() if c.reachable}
        self._needs = {asked[min(asked)]: needs} if needs and asked else {}

    def _ask_for(self, target: Target | None) -> None:
        is_new, begins = target != self._target, not self._beats
        self._beats = self._heartbeat_epoch() is not None
        if is_new or (begins and self._beats):
            # Sidecars accept or reject trainers by the target, and end a change without heartbeats.
            self._target = target
            for contact in self._by_name.values():
                contact.hurried.set()

    async def close(self) -> None:
        """Drop every contact; sidecars complete their changes themselves."""
        await self._silence.close()
        for name in list(self._by_name):
            await self._drop(name)

    async def _drop(self, name: str) -> None:
        contact = self._by_name.pop(name)
        self._restless.discard(name)
        for task in contact.tasks:
            task.cancel()
        await asyncio.gather(*contact.tasks, return_exceptions=True)
        await contact.client.close()

    def worker(
        self,
        name: str,
        ordinal: int,
        pod: Pod | None,
        *,
        fleet_paused: bool = False,
        replace_at: float = 0.0,
        is_dated: bool = True,
    ) -> Worker:
        """Return a worker with its last report and its command; the same object if unchanged."""
        contact = self._by_name.get(name)
        if contact is None:
            return Worker(name, ordinal, pod, fleet_paused=fleet_paused, replace_at=replace_at)
        retry_at = self._wall.of(contact.retry_at) if contact.retry_at else 0.0
        return contact.worker(
            name, ordinal, pod, retry_at, fleet_paused, replace_at, is_dated=is_dated
        )

    def token_revisions(self) -> set[str | None]:
        """Return the revisions of the token that the workers have mounted, as last reported."""
        return {c.report.token_revision for c in self._by_name.values() if c.report}

    @property
    def highest_epoch(self) -> int:
        """The highest epoch above this driver's that a worker reported; 0 without one."""
        return max((contact.newer_epoch for contact in self._by_name.values()), default=0)

    def lead(self, epoch: int) -> None:
        """Start to drive: each worker must acknowledge that earlier drivers' commands are over."""
        for contact in self._by_name.values():
            contact.over = Place(epoch, 0)
            contact.hurried.set()

    def _place(self) -> Place:
        """Return the place up to which a new contact must reject commands."""
        taken = self._taken()
        return Place(0, 0) if taken is None else Place(taken.epoch, self._numbers.last)

    def have_all_answered(self) -> bool:
        """Return whether every worker has answered this driver, terminating ones left out."""
        return all(c.is_acquainted or c.pod.terminating for c in self._by_name.values())

    async def _keep_asking(self, contact: WorkerConnection) -> None:
        """Poll one worker's state until the contact is dropped."""
        while True:
            contact.hurried.clear()
            if not contact.pod.terminating:
                await self._ask(contact)
            contact.give_up_lost(time.monotonic())
            await self._pause(contact, time.monotonic())

    async def _pause(self, contact: WorkerConnection, asked_at: float) -> None:
        """Wait until the next request is due, which each heartbeat's interval decides again."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval(contact)):
                    await contact.hurried.wait()
                    return
            is_asked = contact.pod.name in self._lookers or contact.pod.name in self._needs
            if is_asked or not contact.rests or time.monotonic() - asked_at > _REST_S:
                return

    async def _keep_watching(self, contact: WorkerConnection) -> None:
        """Watch one worker until the contact is dropped; it is polled too, but seldom."""
        failures = 0
        while True:
            await asyncio.sleep(_REWATCH.pause_s(max(1, failures)))
            if not contact.reachable or contact.pod.terminating:
                continue
            begun, error = time.monotonic(), "ended"
            try:
                await self._watch(contact)
            except OperatorError as found:
                error = str(found)
            except TimeoutError:
                error = "silent"
            finally:
                # After a defect too, which ends this task.
                was_watched, contact.is_watched = contact.is_watched, False
                contact.watch = None
                if was_watched:
                    contact.hurried.set()
            failures = _REWATCH.failed(failures, time.monotonic() - begun)
            if was_watched:
                extra = {**self._about, "worker": contact.pod.name, "error": error}
                _log.info("Watch of a sidecar ended, polling it", extra=extra)

    async def _watch(self, contact: WorkerConnection) -> None:
        token = await self._token()
        async with (
            asyncio.timeout(None) as limit,
            contextlib.aclosing(contact.client.watch(token)) as news,
        ):
            watch = contact.watch = Watch(limit, time.monotonic())
            async for report in news:
                if contact.is_replaced(watch):
                    return
                if report is not None:
                    watch.session = demand_of(contact.pod, report).session
                    self._learn(contact, report)
                contact.receive(time.monotonic())
                contact.is_watched = True

    def _spawn(self, contact: WorkerConnection, work: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        contact.tasks.add(task)
        task.add_done_callback(contact.tasks.discard)
        return task

    async def _ask(self, contact: WorkerConnection) -> None:
        try:
            token = await self._token()
        except OperatorError:
            self._lose(contact)  # Without a token there was no request.
        else:
            await self._ask_with(contact, token)
        finally:
            if not contact.answered:
                contact.answered = True
                self._wake()

    async def _ask_with(self, contact: WorkerConnection, token: str) -> None:
        over, taken = contact.over, self._taken()
        unasked = taken.epoch if taken is not None and self._target is None else None
        try:
            report = await contact.client.state(
                token,
                self._heartbeat_epoch(),
                self._target,
                None if contact.is_fenced else over,
                unasked,
                follows=contact.pod.name in self._lookers,
                taken_up=self._lookers.get(contact.pod.name),
                needs=self._needs.get(contact.pod.name),
                limit=None if contact.reachable else self._silent,
            )
            demand_of(contact.pod, report)
        except OperatorError as error:
            # A later request may have been answered first; then this error is outdated.
            if over >= contact.acknowledged:
                await self._unanswered(contact, error)
        else:
            if over < contact.acknowledged:
                return
            if contact.acknowledge(over):
                self._wake()
            self._learn(contact, report)

    def _interval(self, contact: WorkerConnection) -> float:
        """Return the seconds until the next state request."""
        self._count(contact)
        return contact.interval_s(self._poll_s, len(self._restless))

    def _count(self, contact: WorkerConnection) -> None:
        note = self._restless.discard if contact.is_at_rest else self._restless.add
        note(contact.pod.name)

    async def _unanswered(self, contact: WorkerConnection, error: OperatorError) -> None:
        if isinstance(error, WorkerProblem) and error.problem.code is Code.UNAUTHORIZED:
            with contextlib.suppress(OperatorError):
                await self._renew()
        known, silence = contact.error, contact.silence
        contact.miss(str(error), time.monotonic())
        if contact.reachable or contact.error not in {None, known}:
            extra = {**self._about, "worker": contact.pod.name, "error": str(error)}
            _log.info("Sidecar does not answer", extra=extra)
        if contact.silence != silence:
            self._wake()
        self._lose(contact)

    def _lose(self, contact: WorkerConnection) -> None:
        """Mark the worker as unreachable."""
        if contact.reachable:
            contact.reachable = False
            self._wake()

    def _learn(self, contact: WorkerConnection, report: WorkerReport) -> None:
        self._check_epoch(contact, report.epoch)
        if contact.is_outrun(report):
            return
        is_news = contact.is_news(report)
        contact.learn(report, time.monotonic())
        contact.settle()
        if is_news:
            self._wake()

    def _check_epoch(self, contact: WorkerConnection, epoch: int | None) -> None:
        """Record an epoch higher than this driver's, which a later driver has sent the worker."""
        taken = self._taken()
        if epoch is None or taken is None or epoch <= max(taken.epoch, contact.newer_epoch):
            return
        if epoch > HIGHEST_EPOCH:
            # No driver can command that worker again; the other workers must not follow it.
            return
        contact.newer_epoch = epoch
        metrics.STALE_EPOCHS.inc()
        extra = {**self._about, "worker": contact.pod.name, "epoch": taken.epoch, "seen": epoch}
        _log.error("Worker reported a higher epoch", extra=extra)
        self._wake()

    def command(self, action: WorkerCommand, rollout: RolloutSpec) -> None:
        """Send a command; its answer wakes the driver. It replaces a different prepare."""
        contact, about = self._by_name.get(action.worker), (action.version, action.operation)
        taken = self._taken()
        if contact is None or contact.busy_with not in {None, Verb.PREPARE}:
            return
        if taken is None or contact.newer_epoch > taken.epoch:
            return
        if contact.calling is Verb.PREPARE and contact.command is not None:
            if isinstance(action, Prepare) and contact.calling_for == about:
                return
            contact.command.cancel()
        request = action.request(rollout)
        contact.begin(request.VERB, about, time.monotonic())
        contact.command = self._spawn(contact, self._send(contact, request, taken))
        if not contact.needs_no_poll:
            # Poll during a longer change, so that status shows its steps.
            asyncio.get_running_loop().call_later(
                self._interval(contact), contact.hurry_during, contact.command
            )

    async def _send(self, contact: WorkerConnection, request: Command, taken: DrivenFleet) -> None:
        extra = {
            **self._about,
            "worker": contact.pod.name,
            "verb": request.VERB,
            "version": request.version,
            "operation": request.operation,
        }
        command = self._numbers.fenced(request, taken, contact.pod.uid)
        try:
            report = await self._answer_of(contact, command)
            _log.info("Command succeeded", extra=extra)
            contact.failures, contact.retry_at = 0, 0.0
            self._learn(contact, report)
        except OperatorError as error:
            if isinstance(error, WorkerProblem):
                self._check_epoch(contact, error.problem.epoch)
            _log.warning("Command failed", extra={**extra, "error": str(error)})
            contact.retry_at = time.monotonic() + contact.retry_after(error)
            # The report has the failure and the worker's stage.
            await self._ask(contact)
        finally:
            if contact.command is asyncio.current_task():
                contact.command = None
                contact.settle()
            self._count(contact)
            self._wake()

    async def _answer_of(self, contact: WorkerConnection, command: Command) -> WorkerReport:
        try:
            token = await self._token()
            async with place(self._limit):
                contact.idle_since = time.monotonic()
                report = await contact.client.command(token, command)
            return demand_of(contact.pod, report)
        except WorkerProblem:
            raise
        except BaseException:
            # Its answer is lost, or this task was cancelled: the command may still arrive.
            contact.give_up(command)
            raise
