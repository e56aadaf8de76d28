"""What a worker says of itself: the answer to every command and to GET state."""

from enum import StrEnum

from pydantic import Field

from rlfleet_contract.paths import CONTRACT_VERSION
from rlfleet_contract.schema import ContractReply
from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.loaded_lora import AdapterReport
from rlfleet_contract.worker.problems import Problem
from rlfleet_contract.worker.proof import Proof
from rlfleet_contract.worker.selftest import SelfTest
from rlfleet_contract.worker.target import RejectedTrainer


class Stage(StrEnum):
    """Where a worker stands; rlfleet_sidecar.state.stage_machine holds the table of its changes."""

    DOWN = "Down"
    """The engine does not answer."""
    CLOSED = "Closed"
    """The engine runs behind a closed gate; what it was loaded with is not proved."""
    OPEN = "Open"
    """The engine serves a proved version."""
    PAUSED = "Paused"
    """Gate closed and engine paused, before anything was loaded."""
    LOADING = "Loading"
    """The reload has begun and has not ended."""
    LOADED = "Loaded"
    """The reload ended well; nothing is proved yet."""
    PROVED = "Proved"
    """The installed weights are proved; the gate is still closed."""
    DOUBT = "Doubt"
    """A reload or its proof failed: nobody knows what the engine holds."""


class Running(ContractReply):
    """The command that is being carried out."""

    verb: Verb
    """The step it is in."""
    operation: str
    version: str


class Progress(ContractReply):
    """How far a prepare has come."""

    version: str
    bytes_done: int = 0
    """Bytes of the checkpoint that were read, checked and, with a cache, staged."""
    bytes_total: int = 0
    """0 while the checkpoint is not complete or not checked yet."""
    waiting_for: str | None = None
    """What is not there yet; None once the version is complete."""


class Timings(ContractReply):
    """How long each step of one change took, in seconds."""

    prepare_s: float = 0
    pause_s: float = 0
    flush_s: float = 0
    reload_s: float = 0
    verify_s: float = 0
    resume_s: float = 0
    window_s: float = 0
    """From gate closed to gate open."""


class Change(ContractReply):
    """The last change of weights that ended well."""

    operation: str
    version: str
    finished_at: float
    """Seconds since the epoch, by the worker's clock."""
    timings: Timings


class Exits(ContractReply):
    """How often the engine's process ended while it loaded one version, or was to prove it.

    That says less of the version than a refusal does: processes die for reasons of their own.
    """

    version: str
    operation: str
    count: int
    """Of this version under this operation, since the pod began."""


class WorkerReport(ContractReply):
    """All that a worker says of itself; the answer to every verb and to GET state."""

    contract: int = CONTRACT_VERSION
    pod_uid: str | None = None
    """The UID of the worker's pod, if its sidecar knows it: an address may be another pod's."""
    session: str
    """Changes with every start of the sidecar."""
    boot: str | None = None
    """Changes with every start of the engine; None while it does not answer."""
    stage: Stage
    proved: str | None = None
    """The version that the engine's weights were proved to be; None when unknown."""
    proof: Proof | None = None
    """What was shown of ``proved``: other workers of the version compare with it."""
    installed: str | None = None
    """The version that was loaded last, proved or not."""
    prepared: str | None = None
    """The version that was checked and can be reloaded at once."""
    prepared_bytes: int | None = None
    """Bytes of its tensors; None while no version is prepared."""
    progress: Progress | None = None
    """Set while a prepare is under way."""
    staged: list[str] = Field(default_factory=list)
    """Versions in the worker's own cache, newest first."""
    running: Running | None = None
    in_flight: int = 0
    """Requests inside the engine or waiting at its gate."""
    paused_s: float | None = None
    """How long the gate has been closed for a change, in seconds; None while it is not."""
    expires_s: float | None = None
    """How long the sidecar still waits for a sign of the driver, in seconds, before it ends
    the change by itself; None while it is in none, or carries out a command."""
    operation: str | None = None
    """Of the change that it is in, if a driver with an epoch leads that; else None."""
    flushed: str | None = None
    """The operation whose flush emptied the caches last; None while no gate is closed for it."""
    epoch: int | None = None
    """The highest that this worker has seen; None if none."""
    refusal: Problem | None = None
    """Why the last prepare was refused; None after one that succeeded."""
    failure: Problem | None = None
    """Why the last change failed; None after one that succeeded or a new boot."""
    exits: Exits | None = None
    """Of the last load, if the engine ended in it; None after a load that ended otherwise."""
    last_change: Change | None = None
    adapters: list[AdapterReport] = Field(default_factory=list)
    rejected_trainer: RejectedTrainer | None = None
    """The last trainer's call that was rejected while the fleet is asked for a version."""
    self_test: SelfTest | None = None
    """What its engine showed of its own reload; None before the first test, or without one."""
