"""A worker's report: the answer to every command and to GET state."""

from enum import StrEnum
from typing import NamedTuple, Self

from pydantic import Field

from rlfleet_contract.paths import CONTRACT_VERSION
from rlfleet_contract.schema import ContractReply
from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.loaded_lora import AdapterReport
from rlfleet_contract.worker.problems import Problem
from rlfleet_contract.worker.proof import Proof
from rlfleet_contract.worker.retention import Unneeded
from rlfleet_contract.worker.selftest import SelfTest


class Target(NamedTuple):
    """The requested version of a fleet."""

    version: str
    owner: str = ""
    """What set it, such as ``spec.weightVersion, written by kubectl``; empty if unknown."""


class RejectedTrainer(ContractReply):
    """A trainer's call that was rejected because the fleet has a target."""

    client: str
    """Its address and User-Agent."""
    call: str
    """Method and path."""
    at: float
    """Seconds since the epoch, by the worker's clock."""


class Stage(StrEnum):
    """A worker's state; rlfleet_sidecar.state.stage_machine has the table of its changes."""

    DOWN = "Down"
    """The engine does not answer."""
    CLOSED = "Closed"
    """The engine runs behind a closed gate with weights that are not proved."""
    OPEN = "Open"
    """The engine serves a proved version."""
    PAUSED = "Paused"
    """Gate closed and engine paused, before a reload."""
    LOADING = "Loading"
    """The reload has begun and has not ended."""
    LOADED = "Loaded"
    """The reload succeeded; its proof is pending."""
    PROVED = "Proved"
    """The loaded weights are proved; the gate is still closed."""
    DOUBT = "Doubt"
    """A reload or its proof failed: the engine's weights are unknown."""


class Running(ContractReply):
    """The command under way."""

    verb: Verb
    """Its current step."""
    operation: str
    version: str


class Progress(ContractReply):
    """The progress of a prepare."""

    version: str
    bytes_done: int = 0
    """Bytes of the checkpoint that were read, checked and, with a cache, copied."""
    bytes_total: int = 0
    """0 until the checkpoint is complete and its headers are checked."""
    bytes_per_s: float | None = None
    """Since it began to read; None before the first byte."""
    left_s: float | None = None
    """Seconds until its last byte, at that rate; None before the first."""
    waiting_for: str | None = None
    """What is missing; None once the version is complete."""


class Timings(ContractReply):
    """How long each step of one change took, in seconds."""

    prepare_s: float = 0
    pause_s: float = 0
    flush_s: float = 0
    reload_s: float = 0
    verify_s: float = 0
    resume_s: float = 0
    window_s: float = 0
    """From gate closed until requests pass: to gate open, or to a trial that admits them."""
    preloaded: float = 0
    """Share of the version's bytes that the engine had in memory before the change, from 0 to 1."""
    withheld_s: float = 0
    """After the window: how long replies of requests on trial waited for the proof."""


class Change(ContractReply):
    """The last change of weights that succeeded."""

    operation: str
    version: str
    finished_at: float
    """Seconds since the epoch, by the worker's clock."""
    timings: Timings


class Exits(ContractReply):
    """How often the engine's process exited during the load or the proof of one version.

    The version need not be the cause: processes exit for many reasons.
    """

    version: str
    operation: str
    count: int
    """Of this version under this operation, since the pod's start."""


class Newest(ContractReply):
    """The newest complete version that a worker sees in the store."""

    version: str
    run: str = ""
    """The run that the trainer's pointer names; empty without one."""
    found_at: float
    """Seconds since the epoch, by the worker's clock."""


class WorkerReport(ContractReply):
    """The state of a worker; the answer to every command and to GET state."""

    contract: int = CONTRACT_VERSION
    pod_uid: str | None = None
    """The UID of the worker's pod, if its sidecar knows it: a new pod may get the same address."""
    session: str
    """Changes with every start of the sidecar."""
    serial: int | None = None
    """Counts the reports of a session: of two, the higher is the newer state."""
    boot: str | None = None
    """Changes with every start of the engine; None while it does not answer."""
    stage: Stage
    proved: str | None = None
    """The version that the engine was proved to compute with; None when unknown."""
    proof: Proof | None = None
    """The proof of ``proved``; other workers of the version compare with it."""
    installed: str | None = None
    """The version that was loaded last, proved or not."""
    prepared: str | None = None
    """The version that is checked and ready to load."""
    prepared_bytes: int | None = None
    """Bytes of its tensors; None while no version is prepared."""
    progress: Progress | None = None
    """Set while a prepare is under way."""
    staged: list[str] = Field(default_factory=list)
    """Versions in the worker's cache, newest first."""
    running: Running | None = None
    in_flight: int = 0
    """Requests inside the engine or waiting at its gate."""
    paused_s: float | None = None
    """How long the gate has been closed for a change, in seconds; None while it is not."""
    expires_s: float | None = None
    """Seconds until the sidecar ends the change, without a command or heartbeat of its driver;
    None outside a change and during a command."""
    operation: str | None = None
    """The operation of a change whose driver has an epoch; else None."""
    flushed: str | None = None
    """The operation that flushed the caches, while its gate is closed; else None."""
    epoch: int | None = None
    """The highest epoch that this worker has seen; None if none."""
    refusal: Problem | None = None
    """Why the last prepare failed; None after one that succeeded."""
    failure: Problem | None = None
    """Why the last change failed; None after one that succeeded or a new boot."""
    exits: Exits | None = None
    """Exits of the engine during the last load; None after a load without one."""
    last_change: Change | None = None
    adapters: list[AdapterReport] = Field(default_factory=list)
    rejected_trainer: RejectedTrainer | None = None
    """The last trainer's call that was rejected because the fleet has a target."""
    newest: Newest | None = None
    """The newest version in the store; None while the operator does not follow the trainer."""
    look_failure: Problem | None = None
    """Why looks for the newest version fail; None after one that succeeded."""
    unneeded: Unneeded | None = None
    """Published versions that are not needed; None while the operator does not ask."""
    self_test: SelfTest | None = None
    """The result of the engine's self-test; None before the first, or without one."""
    token_revision: str | None = None
    """The revision of the Secret with the fleet's token, as mounted; None if it has none."""

    @property
    def is_plain(self) -> bool:
        """Whether it reports no pause, failure, progress, adapter or rejected trainer."""
        return not (
            self.paused_s is not None
            or self.progress
            or self.refusal
            or self.failure
            or self.exits
            or self.adapters
            or self.rejected_trainer
        )

    def is_older_than(self, other: Self) -> bool:
        """Return whether ``other`` is of the same session and was made later, or is this one."""
        if self.serial is None or other.serial is None or self.session != other.session:
            return False
        return self.serial <= other.serial

    def is_news_after(self, other: Self) -> bool:
        """Return whether a report differs from an earlier one in more than timers and counts.

        The bytes of a prepare are news; its rate changes also while nothing is copied. Reports
        come by the thousand, so nothing is copied to compare them.
        """
        known = vars(other)
        changed = {name for name, value in vars(self).items() if value != known[name]}
        changed -= _TRANSIENT
        if changed != {"progress"} or self.progress is None or other.progress is None:
            return bool(changed)
        return self.progress.model_copy(update=_OF_CLOCK) != other.progress.model_copy(
            update=_OF_CLOCK
        )


_TRANSIENT = frozenset({"serial", "in_flight", "paused_s", "expires_s"})
_OF_CLOCK: dict[str, object] = {"bytes_per_s": None, "left_s": None}
