"""What is known of one pod's sidecar, and when it is worth asking again. Does no I/O."""

import asyncio
from dataclasses import dataclass, field, replace

from rlfleet_contract.worker.commands import BESIDE, Command, PrepareRequest, Verb
from rlfleet_contract.worker.fence import Place
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage, WorkerReport
from rlfleet_operator.core.backoff import Backoff
from rlfleet_operator.core.model.world import RETRY_S, RUNNING, Pod
from rlfleet_operator.errors import OperatorError, WorkerProblem
from rlfleet_operator.workers.client import WorkerClient

_BACKOFF = Backoff(1.0, RETRY_S)
_BUSY_RETRY_S = 0.3
_LOST_S = 5.0
"""The answer of a command whose worker does nothing for so long is lost."""
PATIENCE_S = 30.0
"""A sidecar in a pod that runs and does not answer for so long is complained of."""
_NONE = Place(0, 0)
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
    answered_at: float = 0.0
    """When it answered last, by the monotonic clock."""
    open_since: float = 0.0
    """When it was first heard to be open, of this time; 0 while it is not."""
    retry_at: float = 0.0
    """When the command that failed may be sent again, by the monotonic clock; 0 if at once."""
    failures: int = 0
    asking: asyncio.Task[None] | None = None
    """Asks it for as long as it is known."""
    hurried: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it shall not wait as long for the next question as it was told to."""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    over: Place = _NONE
    """Up to where no command may be carried out any more: it was given up, or its driver was."""
    told: Place = _NONE
    """Up to where the sidecar knows so."""
    outrun_by: int = 0
    """The highest epoch that the sidecar told: nothing of a lower one is sent to it."""
    answered: bool = False
    """Whether a question has come to its end, with an answer or without."""
    idle_since: float = 0.0
    """Since when the worker does nothing although a command waits for its answer."""
    patience_s: float = PATIENCE_S
    error: str | None = None
    """Why its last question was not answered, while its pod runs; None when it was."""
    error_since: float = 0.0
    silent_since: float = 0.0
    """Since when nothing was answered; counts while there is an error."""
    silence: str | None = None
    """What is told of it once it has not answered for a while."""

    @property
    def is_fenced(self) -> bool:
        """Whether no command that came late could make what it reported untrue."""
        return self.told >= self.over

    @property
    def is_acquainted(self) -> bool:
        """Whether whoever drives has its answer, or will have none."""
        return self.answered and (self.is_fenced or not self.reachable)

    @property
    def busy_with(self) -> Verb | None:
        """What it has been asked, or may have been asked, without an answer that counts."""
        can_be_told = self.reachable and not self.pod.terminating
        if self.calling in {None, *BESIDE} and can_be_told and not self.is_fenced:
            return Verb.RELOAD
        return self.calling

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is under way that would be worth watching."""
        report = self.report
        return (
            self.reachable
            and self.busy_with is None
            and report is not None
            and report.running is None
            and report.stage in {Stage.OPEN, Stage.DOUBT}
            and self.pod.ready == (report.stage is Stage.OPEN)
        )

    def see(self, pod: Pod) -> None:
        """Take a newer state of the pod; if the kubelet saw something, it is asked at once."""
        known, self.pod = self.pod, pod
        label, gate = known.version_label, known.weights_ready
        if replace(pod, version_label=label, weights_ready=gate) != known:
            self.hurried.set()

    def hurry_during(self, command: asyncio.Task[None]) -> None:
        """Ask at once if this command is still under way."""
        if self.command is command:
            self.hurried.set()

    def is_news(self, report: WorkerReport) -> bool:
        """Tell whether a report says more than that time goes on."""
        known = self.report
        if known is None or not self.reachable:
            return True
        # Nearly all are equal: the copies are made for the few that are not.
        return known != report and _lasting(known) != _lasting(report)

    def learn(self, report: WorkerReport, now: float) -> None:
        """Take an answer; ``now`` by the monotonic clock."""
        self.report, self.reachable, self.answered_at = report, True, now
        is_open = report.stage is Stage.OPEN
        self.open_since = (self.open_since or now) if is_open else 0.0
        self.hear()

    def miss(self, error: str, now: float) -> None:
        """Note that a question was not answered.

        What is told stays until another error has lasted as long: two that take turns are one.
        """
        if self.pod.phase != RUNNING:
            # Its containers may not have begun: the pod's own state tells why.
            self.hear()
            return
        if self.error is None:
            self.silent_since = now
        if error != self.error:
            self.error, self.error_since = error, now
        since = self.silent_since if self.silence is None else self.error_since
        if now - since >= self.patience_s:
            self.silence = f"its sidecar at {self.client.at} does not answer: {error}"

    def hear(self) -> None:
        """Note that there is no silence any more."""
        self.error = self.silence = None

    def give_up_lost(self, now: float) -> None:
        """Wait no longer for the answer of a command that is not being carried out."""
        is_busy = self.report is None or not self.reachable or self.report.running is not None
        if self.command is None or is_busy:
            self.idle_since = now
        elif now - self.idle_since > _LOST_S:
            self.command.cancel()

    def settle(self) -> None:
        """Note that a command is under way no more, once the worker has told how it stands.

        Whoever was asked to change and cannot be asked about it may be changing still.
        """
        if self.command is None and (self.reachable or self.calling is Verb.PREPARE):
            self.calling = None

    def give_up(self, command: Command) -> None:
        """Wait for a command's answer no longer; a prepare that comes late takes nobody out."""
        if command.fence is not None and not isinstance(command, PrepareRequest):
            self.over = max(self.over, command.fence.place)

    def tell(self, over: Place) -> bool:
        """Note that the sidecar knows up to where commands are over; tell whether that is news."""
        was_fenced, self.told = self.is_fenced, max(self.told, over)
        return self.is_fenced and not was_fenced

    def retry_after(self, error: OperatorError) -> float:
        """Return the seconds until a command that failed may be sent again."""
        if isinstance(error, WorkerProblem) and error.problem.code is Code.BUSY:
            return _BUSY_RETRY_S
        self.failures += 1
        return _BACKOFF.pause_s(self.failures)


def _lasting(report: WorkerReport) -> WorkerReport:
    return report.model_copy(update=_IDLE)
