"""One worker of the model: an engine, its sidecar, and what is on the way to it.

The sidecar's decisions are the real ones: ``swap`` (step, observe, rescue, steps_to) and
``judge``. What carries them out (change/, state/journal.py) does I/O and is
repeated here in small steps, each of which something may die between. ``test_mirror.py``
holds that telling against the real thing.
"""

from enum import StrEnum
from typing import NamedTuple

from rlfleet_contract.paths import BASE_VERSION
from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.proof import Proof
from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.state.stage_machine import State

UPDATE = "Update"
RESCUE = "Rescue"
UNKNOWN = "?"
"""What an engine holds after a reload that failed half way."""


class Fate(StrEnum):
    """What becomes of a worker that is given a version."""

    GOOD = "Good"
    REFUSED = "Refused"
    """Its checkpoint is refused by prepare."""
    BREAKS = "Breaks"
    """It loads, and the probe shows that it is broken."""
    CRUSHES = "Crushes"
    """Its reload fails."""
    EXITS = "Exits"
    """The engine's process ends whenever it loads it."""


class ViolationError(Exception):
    """A promise is broken; says which, where and how."""


class Mark(NamedTuple):
    """A refusal or a failure, as the journal keeps it."""

    code: Code
    version: str
    operation: str

    @property
    def retryable(self) -> bool:
        """What the contract says of the code."""
        return self.code.retryable


class Command(NamedTuple):
    """One command on its way, or under way."""

    what: str
    """A verb, an Update, or a Rescue."""
    version: str
    operation: str
    expected: Proof | None = None
    """What a peer showed of the version."""
    through: Verb = Verb.RESUME
    """The last step of an update."""
    epoch: int = 0
    pod: int = 0
    """UID of the pod that is meant."""
    place: int = 2
    """Its sequence next to the worker's last: 2 later, 1 that very one, 0 an earlier one."""
    is_over: bool = False
    """Whether the worker knows that its driver no longer waits for it."""

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes two commands the same for a worker that is busy."""
        return self.what, self.operation, self.version

    def __str__(self) -> str:
        through = f" through {self.through}" if self.through is not Verb.RESUME else ""
        return f"{self.what} {self.version}{through} ({self.operation}, epoch {self.epoch})"


class Running(NamedTuple):
    """The command under way and what is left of it."""

    command: Command
    verbs: tuple[str, ...]
    """The steps that are left, the present one first."""
    is_begun: bool = False
    """Whether the present step has been written down and not done yet."""


class Engine(NamedTuple):
    """The truth about one engine, which only the engine knows."""

    boot: int = 1
    is_up: bool = False
    holds: str = BASE_VERSION
    is_tested: bool = False
    """Whether what it holds now has answered a probe well."""
    is_paused: bool = False
    is_open: bool = False


class Local(NamedTuple):
    """One worker: all that is true of it. None of it is known to the operator but by report."""

    pod: int = 1
    """UID of the pod; they count up."""
    exists: bool = True
    gate: bool | None = None
    """The readiness gate that the operator wrote on the pod."""
    label: str | None = None
    engine: Engine = Engine()
    state: State = State()
    has_cache: bool = True
    """Whether what it prepared outlives its sidecar."""
    refusal: Mark | None = None
    failure: Mark | None = None
    loading: tuple[str, str] | None = None
    """Version and operation of the load that has not ended."""
    exits: tuple[str, str, int] | None = None
    """The same of the load that the engine ended in, and how often it did."""
    running: Running | None = None
    epoch: int = 0
    """The highest that the sidecar has seen; 0 before any."""
    is_answered: bool = True
    """Whether the last command that it received in this epoch has had its answer."""
    mail: tuple[Command, ...] = ()
    """Commands that arrive a second time, or of a driver that is gone."""
    is_overdue: bool = False
    """Whether its gate has been closed for a change for longer than a pause may take."""
    at_risk: str = ""
    """The operation under which it was taken out of service for a version that is bad."""
    harmed_by: str = ""
    """The operation under which it was in service, and a bad version put it in doubt."""

    @property
    def is_ready(self) -> bool:
        """Kubernetes' verdict: the sidecar's /ready and our readiness gate."""
        return self.exists and bool(self.gate) and self.state.serving

    @property
    def is_out(self) -> bool:
        """Whether it was in service and is being changed: its clients wait at the gate."""
        return self.is_ready and self.state.stage is not Stage.OPEN

    def __str__(self) -> str:
        if not self.exists:
            return "no pod"
        held = self.engine.holds + ("" if self.engine.is_tested else " untested")
        gate = "open" if self.engine.is_open else "shut"
        paused = " paused" if self.engine.is_paused else ""
        words = [str(self.state.stage), f"proved={self.state.proved}", f"({held}, {gate}{paused})"]
        if not self.engine.is_up:
            words.append("engine down")
        if self.running:
            words.append(f"running {self.running.command}: {'+'.join(self.running.verbs)}")
        if self.failure:
            words.append(f"failure {self.failure.code} of {self.failure.version}")
        if self.is_overdue:
            words.append("overdue")
        if self.refusal:
            words.append(f"refusal of {self.refusal.version}")
        return " ".join([*words, "ready" if self.is_ready else "unready"])


class Answer(NamedTuple):
    """How a command ended, for its caller."""

    is_good: bool


NEVER = frozenset({Verb.FLUSH})
"""Steps that change nothing which the model knows."""
