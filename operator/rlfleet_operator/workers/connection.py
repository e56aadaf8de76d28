"""The state of the connection to one pod's sidecar: its last report, its command. Does no I/O."""

import asyncio
import random
from dataclasses import dataclass, field, replace

from rlfleet_contract.paths import DEFAULT_TTL_S
from rlfleet_contract.worker.commands import BESIDE, Command, PrepareRequest, Verb
from rlfleet_contract.worker.fence import Place
from rlfleet_contract.worker.problems import Code, Problem
from rlfleet_contract.worker.report import Stage, WorkerReport
from rlfleet_operator.core.backoff import Backoff
from rlfleet_operator.core.model.worker_pod import Pod
from rlfleet_operator.core.model.world import RETRY_S, RUNNING, Worker
from rlfleet_operator.errors import OperatorError, WorkerProblem
from rlfleet_operator.workers.client import WorkerClient

_BACKOFF = Backoff(1.0, RETRY_S)
_BUSY_RETRY_S = 0.3
LOST_S = 5.0
"""A command whose worker is idle for so long has lost its answer."""
PATIENCE_S = 30.0
"""A sidecar in a running pod that does not answer for so long appears in status."""
_RESTLESS_S = 0.5
_BEAT_S = DEFAULT_TTL_S / 3
"""Interval of heartbeats to a worker that sends its news by itself."""
_ASKED_PER_S = 100
"""The rate of state requests to a fleet's busy workers that are not watched. Each takes a
millisecond on both sides, and the answer to a command needs none."""
_NONE = Place(0, 0)


@dataclass(slots=True)
class Watch:
    """A watch under way."""

    limit: asyncio.Timeout
    """Ends it, if it is silent or another session's."""
    received_at: float
    """When it began, or the last report or sign of life came, by the monotonic clock."""
    session: str | None = None
    """The session of its reports; None before the first."""


@dataclass(slots=True)
class WorkerConnection:
    """The state of the connection to one pod's sidecar."""

    client: WorkerClient
    pod: Pod
    report: WorkerReport | None = None
    reachable: bool = False
    calling: Verb | None = None
    calling_for: tuple[str, str] | None = None
    """Version and operation of the last command; its back-off delays no other command."""
    last: Verb | None = None
    """The last command, also after its end."""
    command: asyncio.Task[None] | None = None
    answered_at: float = 0.0
    """When the sidecar answered last, by the monotonic clock."""
    open_since: float = 0.0
    """When it was first observed open, without an interruption; 0 while it is not."""
    retry_at: float = 0.0
    """When to retry the failed command, by the monotonic clock; 0 for at once."""
    failures: int = 0
    rejections: dict[str, Problem] = field(default_factory=dict)
    """Its last rejection of each version since the last prepare that succeeded."""
    asking: asyncio.Task[None] | None = None
    """Polls the sidecar's state until the contact is dropped."""
    is_watched: bool = False
    """Whether the sidecar sends its news by itself, and was not silent (silence.py)."""
    watch: Watch | None = None
    """Its watch under way, until that has to end."""
    hurried: asyncio.Event = field(default_factory=asyncio.Event)
    """Set to poll at once instead of after the interval."""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    over: Place = _NONE
    """Commands up to this place must have no effect: their driver ended, or gave them up."""
    acknowledged: Place = _NONE
    """The place up to which the sidecar rejects commands."""
    newer_epoch: int = 0
    """The highest epoch that the sidecar reported; commands of lower ones are not sent to it."""
    answered: bool = False
    """Whether the first state request has ended, with an answer or without."""
    idle_since: float = 0.0
    """Since when the worker is idle as far as known: the last command, or report of one."""
    patience_s: float = PATIENCE_S
    error: str | None = None
    """The error of the last state request while the pod runs; None after an answer."""
    error_since: float = 0.0
    silent_since: float = 0.0
    """Since when no state request was answered; valid while there is an error."""
    silence: str | None = None
    """The message for status once the sidecar has not answered for a while."""
    facts: tuple[object, ...] = ()
    observed: Worker | None = None
    """The worker in the last pass, and what it was made of."""

    @property
    def is_fenced(self) -> bool:
        """Whether the sidecar rejects every late command, so that its report stays true."""
        return self.acknowledged >= self.over

    @property
    def needs_no_poll(self) -> bool:
        """Whether its watch suffices: a state request must still find a lost or unfenced worker."""
        return self.is_watched and self.reachable and self.is_fenced

    @property
    def rests(self) -> bool:
        """Whether it serves, at most prepares, and its watch suffices: no TTL has to be renewed."""
        report = self.report
        if report is None or report.stage is not Stage.OPEN or not self.needs_no_poll:
            return False
        return self._is_undisturbed and (
            report.running is None or report.running.verb is Verb.PREPARE
        )

    @property
    def _is_undisturbed(self) -> bool:
        """Whether no command is under way but a prepare."""
        return self.command is None or self.calling is Verb.PREPARE

    @property
    def is_acquainted(self) -> bool:
        """Whether the current driver has the sidecar's report, or gets none."""
        return self.answered and (self.is_fenced or not self.reachable)

    @property
    def busy_with(self) -> Verb | None:
        """The command under way; Reload while a late command might still start one."""
        can_acknowledge = self.reachable and not self.pod.terminating
        if self.calling in {None, *BESIDE} and can_acknowledge and not self.is_fenced:
            return Verb.RELOAD
        return self.calling

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is under way, so that a slow poll is enough."""
        report = self.report
        return (
            self.reachable
            and self.busy_with is None
            and report is not None
            and report.running is None
            and report.stage in {Stage.OPEN, Stage.DOUBT}
            and self.pod.ready == (report.stage is Stage.OPEN)
        )

    def interval_s(self, poll_s: float, restless: int) -> float:
        """Return the seconds until the next state request; at random, which spreads load.

        ``poll_s`` is the interval for a worker at rest, ``restless`` how many of the fleet are not.
        """
        if self.needs_no_poll:
            return _BEAT_S * random.uniform(0.8, 1.0)  # noqa: S311 - no secret
        if self.is_at_rest:
            return poll_s * random.uniform(0.8, 1.2)  # noqa: S311 - no secret
        return max(_RESTLESS_S, restless / _ASKED_PER_S)

    def worker(
        self,
        name: str,
        ordinal: int,
        pod: Pod | None,
        retry_at: float,
        fleet_paused: bool,  # noqa: FBT001 - a field among fields
        replace_at: float,
        *,
        is_dated: bool,
    ) -> Worker:
        """Return the worker as it is now: the object of the last pass if nothing changed.

        Each sign of life changes when it answered; so that is left out unless it ``is_dated``.
        """
        of_pass = name, ordinal, pod
        of_contact = self.report, self.reachable, self.busy_with, self.calling_for
        of_fleet = retry_at, fleet_paused, replace_at
        answered_at = self.answered_at if is_dated else 0.0
        told = self.silence, answered_at, self.open_since, tuple(self.rejections.values())
        facts = *of_pass, *of_contact, *of_fleet, *told
        if self.observed is None or facts != self.facts:
            self.facts, self.observed = facts, Worker(*facts)
        return self.observed

    def see(self, pod: Pod) -> None:
        """Store a newer state of the pod; if the kubelet changed something, poll at once.

        A watched sidecar reports each change of the worker by itself.
        """
        known, self.pod = self.pod, pod
        if pod is known or self.needs_no_poll:
            return
        label, gate = known.version_label, known.weights_ready
        if replace(pod, version_label=label, weights_ready=gate) != known:
            self.hurried.set()

    def begin(self, verb: Verb, about: tuple[str, str], now: float) -> None:
        """Record a command that is sent now; another one than the last has not failed yet.

        Adapters that failed are tried in turn, as are versions of one rollout that a worker
        rejects: each would seem to be another one.
        """
        known = self.calling_for or ("", "")
        is_rejected = bool(self.rejections) and about[1] == known[1]
        is_in_turn = verb is self.last and (verb is Verb.ADAPT or is_rejected)
        if about != self.calling_for and not is_in_turn:
            self.failures = 0
        self.calling = self.last = verb
        self.calling_for, self.idle_since = about, now

    def hurry_during(self, command: asyncio.Task[None]) -> None:
        """Poll at once if this command is still under way and no watch shows its steps."""
        if self.command is command and not self.needs_no_poll:
            self.hurried.set()

    def is_news(self, report: WorkerReport) -> bool:
        """Return whether a report differs from the last in more than timers and counts."""
        known = self.report
        return known is None or not self.reachable or report.is_news_after(known)

    def is_outrun(self, report: WorkerReport) -> bool:
        """Return whether a report arrived after one that the sidecar made later."""
        return self.report is not None and report.is_older_than(self.report)

    def receive(self, now: float) -> None:
        """Record that a watch has brought a sign of life."""
        if self.watch is not None:
            self.watch.received_at = now
        self.confirm(now)
        self.give_up_lost(now)

    def is_replaced(self, watch: Watch) -> bool:
        """Return whether a restarted sidecar was polled: the watch is of the one before."""
        if watch.session is None or self.report is None:
            return False
        return self.report.session != watch.session

    def confirm(self, now: float) -> None:
        """Record a sign of life: the report is still true."""
        if self.reachable:
            self.answered_at = now

    def learn(self, report: WorkerReport, now: float) -> None:
        """Store a report; ``now`` by the monotonic clock."""
        if not self._is_idle or report.running is not None:
            self.idle_since = now
        self.report, self.reachable, self.answered_at = report, True, now
        self._remember(report.refusal)
        is_open = report.stage is Stage.OPEN
        self.open_since = (self.open_since or now) if is_open else 0.0
        self.end_silence()

    def _remember(self, refusal: Problem | None) -> None:
        """Record a rejection: the next one of another version replaces it in the report."""
        if refusal is None or refusal.version is None:
            self.rejections = {}
        elif self.rejections.get(refusal.version) != refusal:
            self.rejections = {
                version: known
                for version, known in self.rejections.items()
                if known.operation == refusal.operation
            } | {refusal.version: refusal}

    def miss(self, error: str, now: float) -> None:
        """Record that a state request failed.

        The message changes only after another error has lasted as long, so that two errors that
        alternate do not change status each time.
        """
        if self.pod.phase != RUNNING:
            # Its containers may not run yet; the pod's own state says why.
            self.end_silence()
            return
        if self.error is None:
            self.silent_since = now
        if error != self.error:
            self.error, self.error_since = error, now
        since = self.silent_since if self.silence is None else self.error_since
        if now - since >= self.patience_s:
            self.silence = f"sidecar at {self.client.at} does not answer: {error}"

    def end_silence(self) -> None:
        """Remove the error and the message for status."""
        self.error = self.silence = None

    def has_lost_answer(self, now: float) -> bool:
        """Return whether a command is under way whose worker has been idle for too long."""
        return self.command is not None and self._is_idle and now - self.idle_since > LOST_S

    @property
    def _is_idle(self) -> bool:
        """Whether the sidecar, as last known, carries out nothing."""
        return self.reachable and self.report is not None and self.report.running is None

    def give_up_lost(self, now: float) -> None:
        """Cancel such a command."""
        if self.command is not None and self.has_lost_answer(now):
            self.command.cancel()

    def settle(self) -> None:
        """Clear the command after its end, once the worker has reported its state.

        An unreachable worker may still be changing.
        """
        if self.command is None and (self.reachable or self.calling is Verb.PREPARE):
            self.calling = None

    def give_up(self, command: Command) -> None:
        """Stop waiting for a command; its late arrival must have no effect, except of a prepare.

        Until a state request says so to the sidecar, its worker counts as changing.
        """
        if command.fence is not None and not isinstance(command, PrepareRequest):
            self.over = max(self.over, command.fence.place)
            self.hurried.set()

    def acknowledge(self, over: Place) -> bool:
        """Record the sidecar's acknowledgement of ``over``; return whether that fences it now."""
        was_fenced, self.acknowledged = self.is_fenced, max(self.acknowledged, over)
        return self.is_fenced and not was_fenced

    def retry_after(self, error: OperatorError) -> float:
        """Return the back-off of a failed command."""
        if isinstance(error, WorkerProblem) and error.problem.code is Code.BUSY:
            return _BUSY_RETRY_S
        self.failures += 1
        return _BACKOFF.pause_s(self.failures)
