"""The sidecars of one fleet: what each said last, and what each is being asked.

Knows nothing of the plan. A contact belongs to one pod (by uid): what an
earlier pod of the same name said is never taken for the new one's word.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from rlfleet_contract.models import (
    Stage,
    Verb,
    WorkerReport,
)
from rlfleet_contract.problems import Code
from rlfleet_operator.adapters import metrics
from rlfleet_operator.adapters.worker import WorkerClient
from rlfleet_operator.core.actions import Command, Prepare, Resume, Update
from rlfleet_operator.core.world import Pod, Worker
from rlfleet_operator.errors import OperatorError, WorkerProblem
from rlfleet_operator.resource_rollout import RolloutSpec
from rlfleet_operator.wire import Body, Numbers, Taken, body_of

_log = logging.getLogger(__name__)

_VERBS = {Prepare: Verb.PREPARE, Update: Verb.RELOAD, Resume: Verb.RESUME}
_DONE = {
    Prepare: "a worker prepared a version",
    Update: "a worker changed its version",
    Resume: "a worker serves what it had",
}
_RESTLESS_S = 0.5
_FIRST_RETRY_S = 1.0
_LAST_RETRY_S = 15.0
_BUSY_RETRY_S = 0.3
_IDLE: dict[str, object] = {"in_flight": 0, "paused_s": None, "expires_s": None, "epoch": None}
"""What differs from one report to the next without being news."""


@dataclass(slots=True)
class Contact:
    """What is known of one pod's sidecar."""

    client: WorkerClient
    pod: Pod
    report: WorkerReport | None = None
    reachable: bool = False
    calling: Verb | None = None
    calling_for: tuple[str, str] | None = None
    """Version and operation of the last command: another does not wait for its failures."""
    command: asyncio.Task[None] | None = None
    retry_at: float = 0.0
    failures: int = 0
    poll_at: float = 0.0
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    polling: bool = False
    unanswered: Body | None = None
    """The last command while its answer is not known."""
    outrun_by: int = 0
    """The highest epoch that the sidecar told: nothing of a lower one is sent to it."""
    answered: bool = False
    """Whether a question has come to its end, with an answer or without."""


class Contacts:
    """Asks and remembers; wakes its fleet when an answer says something new."""

    def __init__(
        self,
        limit: asyncio.Semaphore,
        poll_s: float,
        wake: Callable[[], None],
        token: Callable[[], Awaitable[str]],
        renew: Callable[[], Awaitable[str]],
        taken: Callable[[], Taken | None],
    ) -> None:
        """Share ``limit`` with other fleets; ``renew`` reads the admin token anew.

        ``taken`` tells the fleet and its epoch while it is driven from here.
        """
        self._limit, self._poll_s, self._wake = limit, poll_s, wake
        self._token, self._renew, self._taken = token, renew, taken
        self._numbers = Numbers()
        self._by_name: dict[str, Contact] = {}

    async def follow(self, pods: Mapping[str, Pod], port: int) -> None:
        """Keep exactly one contact for every pod that has an address."""
        for name, contact in list(self._by_name.items()):
            pod = pods.get(name)
            if pod is None or (pod.uid, pod.address) != (contact.pod.uid, contact.pod.address):
                await self._drop(name)
            elif pod != contact.pod:
                # The kubelet saw something: ask at once.
                contact.pod, contact.poll_at = pod, 0.0
        for name, pod in pods.items():
            if name not in self._by_name and pod.address is not None:
                host = f"[{pod.address}]" if ":" in pod.address else pod.address
                client = WorkerClient(f"http://{host}:{port}", self._limit)
                self._by_name[name] = Contact(client, pod)

    async def close(self) -> None:
        """Forget everybody; what a sidecar has begun it ends by itself."""
        for name in list(self._by_name):
            await self._drop(name)

    async def _drop(self, name: str) -> None:
        contact = self._by_name.pop(name)
        for task in contact.tasks:
            task.cancel()
        await asyncio.gather(*contact.tasks, return_exceptions=True)
        await contact.client.close()

    def worker(self, name: str, ordinal: int, pod: Pod | None) -> Worker:
        """Return what is known of a worker."""
        contact = self._by_name.get(name)
        if contact is None:
            return Worker(name, ordinal, pod)
        return Worker(
            name,
            ordinal,
            pod,
            report=contact.report,
            reachable=contact.reachable,
            calling=contact.calling,
            calling_for=contact.calling_for,
            retry_at=contact.retry_at,
        )

    def have_all_answered(self) -> bool:
        """Tell whether every worker that can be asked was asked once."""
        return all(c.answered or c.pod.terminating for c in self._by_name.values())

    # --- questions ------------------------------------------------------------------------------

    def poll(self) -> float:
        """Ask every worker whose time has come; return the seconds until the next one's."""
        now = time.time()
        soonest = now + self._poll_s
        for name, contact in self._by_name.items():
            if contact.polling or contact.pod.terminating:
                continue
            if now >= contact.poll_at:
                self._spawn(contact, self._ask(name, contact))
            else:
                soonest = min(soonest, contact.poll_at)
        return max(0.0, soonest - now)

    def _spawn(self, contact: Contact, work: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        contact.tasks.add(task)
        task.add_done_callback(contact.tasks.discard)
        return task

    async def _ask(self, name: str, contact: Contact) -> None:
        contact.polling = True
        try:
            taken = self._taken()
            epoch = None if taken is None else taken.epoch
            report = await contact.client.state(await self._token(), epoch)
        except OperatorError as error:
            await self._unanswered(name, contact, error)
        else:
            self._learn(contact, report)
        finally:
            contact.polling = False
            contact.poll_at = time.time() + self._interval(contact)
            if not contact.answered:
                contact.answered = True
                self._wake()

    def _interval(self, contact: Contact) -> float:
        report = contact.report
        is_at_rest = (
            contact.reachable
            and contact.calling is None
            and report is not None
            and report.running is None
            and report.stage in {Stage.OPEN, Stage.DOUBT}
            and contact.pod.ready == (report.stage is Stage.OPEN)
        )
        if not is_at_rest:
            return _RESTLESS_S
        return self._poll_s * random.uniform(0.8, 1.2)  # noqa: S311 - spreads load

    async def _unanswered(self, name: str, contact: Contact, error: OperatorError) -> None:
        if isinstance(error, WorkerProblem) and error.problem.code is Code.UNAUTHORIZED:
            await self._renew()
        if contact.reachable:
            _log.info("a sidecar stopped answering", extra={"worker": name, "error": str(error)})
            contact.reachable = False
            self._wake()

    def _learn(self, contact: Contact, report: WorkerReport) -> None:
        self._heed(contact, report.epoch)
        before = contact.report
        is_news = (
            not contact.reachable
            or before is None
            or before.model_copy(update=_IDLE) != report.model_copy(update=_IDLE)
        )
        contact.report, contact.reachable = report, True
        _settle(contact)
        if is_news:
            self._wake()

    def _heed(self, contact: Contact, epoch: int | None) -> None:
        """See whether a later driver than this one has spoken to the worker."""
        taken = self._taken()
        if epoch is None or taken is None or epoch <= max(taken.epoch, contact.outrun_by):
            return
        contact.outrun_by = epoch
        metrics.STALE_EPOCHS.inc()
        extra = {"worker": contact.pod.name, "epoch": taken.epoch, "seen": epoch}
        _log.error("a worker has a later driver; nothing more is sent to it from here", extra=extra)

    # --- commands -------------------------------------------------------------------------------

    def command(self, action: Command, rollout: RolloutSpec) -> None:
        """Send a command; its answer wakes the fleet. It overtakes a prepare for something else."""
        contact, about = self._by_name.get(action.worker), (action.version, action.operation)
        taken = self._taken()
        if contact is None or contact.calling in {Verb.RELOAD, Verb.RESUME}:
            return
        if taken is None or contact.outrun_by > taken.epoch:
            return
        if contact.calling is Verb.PREPARE and contact.command is not None:
            if isinstance(action, Prepare) and contact.calling_for == about:
                return
            contact.command.cancel()
        if contact.calling_for != about:
            contact.calling_for, contact.failures = about, 0
        contact.calling = _VERBS[type(action)]
        # While a change runs its steps are worth watching.
        contact.poll_at = min(contact.poll_at, time.time() + _RESTLESS_S)
        contact.command = self._spawn(contact, self._send(contact, action, rollout, taken))

    async def _send(
        self, contact: Contact, action: Command, rollout: RolloutSpec, taken: Taken
    ) -> None:
        extra = {"worker": action.worker, "version": action.version, "operation": action.operation}
        body = self._numbers.fenced(
            body_of(action, rollout), taken, contact.pod.uid, contact.unanswered
        )
        try:
            lost, contact.unanswered = contact.unanswered, body
            report = await contact.client.command(await self._token(), body)
            _log.info(_DONE[type(action)], extra=extra)
            contact.failures, contact.retry_at = 0, 0.0
            contact.unanswered = None
            if body is lost:
                # The answer may be the one that was lost, and old.
                await self._ask(action.worker, contact)
            else:
                self._learn(contact, report)
        except OperatorError as error:
            if isinstance(error, WorkerProblem):
                contact.unanswered = None
                self._heed(contact, error.problem.epoch)
            _log.warning("a command failed", extra={**extra, "error": str(error)})
            contact.retry_at = time.time() + _retry_after(contact, error)
            # Its report tells why, and in what state it is now.
            await self._ask(action.worker, contact)
        finally:
            if contact.command is asyncio.current_task():
                contact.command = None
                _settle(contact)
            self._wake()


def _settle(contact: Contact) -> None:
    """Note that a command is under way no more, once the worker has told how it stands.

    Whoever was asked to change and cannot be asked about it may be changing still.
    """
    if contact.command is None and (contact.reachable or contact.calling is Verb.PREPARE):
        contact.calling = None


def _retry_after(contact: Contact, error: OperatorError) -> float:
    if isinstance(error, WorkerProblem) and error.problem.code is Code.BUSY:
        return _BUSY_RETRY_S
    contact.failures += 1
    return min(_LAST_RETRY_S, _FIRST_RETRY_S * 2.0 ** (contact.failures - 1))
