"""What is observed of one fleet at one moment, as frozen values.

Raw Kubernetes objects stop at ``fleet_from`` here and at ``pod_from`` in pod.py: they are
parsed once, and everything behind sees only valid, typed values.
"""

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Protocol

from rlfleet_contract.worker.commands import BESIDE, Verb
from rlfleet_contract.worker.problems import Code, Problem
from rlfleet_contract.worker.proof import Proof
from rlfleet_contract.worker.report import Stage, WorkerReport
from rlfleet_operator.core.model import peer_proofs, wanted_lora
from rlfleet_operator.crd.fleet_spec import GROUP, FleetSpec
from rlfleet_operator.crd.fleet_status import FleetStatus, TrainerPause

FLEET_LABEL = f"{GROUP}/fleet"
ORDINAL_LABEL = f"{GROUP}/ordinal"
VERSION_LABEL = f"{GROUP}/weight-version"
TEMPLATE_ANNOTATION = f"{GROUP}/template-hash"
SELF_TEST_ANNOTATION = f"{GROUP}/self-test"
READINESS_GATE = f"{GROUP}/WeightsReady"
ENGINE_CONTAINER = "engine"
SIDECAR_CONTAINER = "sidecar"

RETRY_S, REPLACE_S = 15.0, 300.0
"""How long the next try of a command, and the next pod, is waited for at most: what lies further
ahead was said by another clock."""
RUNNING = "Running"
"""The phase of a pod whose containers run."""

Raw = Mapping[str, Any]


class Identity(Protocol):
    """Which fleet something is about."""

    @property
    def namespace(self) -> str:
        """The fleet's namespace."""

    @property
    def name(self) -> str:
        """The fleet's name."""

    @property
    def uid(self) -> str:
        """The fleet's UID."""


@dataclass(frozen=True, slots=True)
class Named:
    """Which fleet an object is; nothing else of the object is parsed."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Fleet:
    """One RLInferenceFleet: what is wanted and what was recorded last."""

    name: str
    namespace: str
    uid: str
    generation: int
    spec: FleetSpec
    status: FleetStatus
    deleting: bool = False

    @property
    def target(self) -> str | None:
        """The version that is asked for: by the spec, else by a trainer; None if by nobody."""
        trainers = self.status.trainer_target
        return self.spec.weight_version or (trainers.version if trainers else None)

    def asks_for(self, version: str | None) -> bool:
        """Tell whether a version is asked for, or fallen back to, and not one of before.

        Where nobody asks the fleet, trainers ask its workers, each for what it likes.
        """
        recorded = self.status.rollout
        led_to = {recorded.to, recorded.from_version} if recorded else set()
        return self.target is None or version in {self.target, *led_to}

    def pause_at(self, moment: float) -> TrainerPause | None:
        """Return the trainer's pause that holds the fleet then; None if none does, or it is over.

        The spec goes first: once it names a version, nobody else holds the fleet.
        """
        pause = self.status.trainer_pause
        if pause is None or pause.ending or self.deleting or self.spec.weight_version is not None:
            return None
        return pause if moment < pause.until_epoch else None


@dataclass(frozen=True, slots=True)
class Pod:
    """One worker's pod, as far as decisions need it."""

    name: str
    uid: str
    ordinal: int
    owner_uid: str
    template_hash: str
    address: str | None
    """The pod's IP once it has one."""
    phase: str
    ready: bool
    """Kubernetes' own verdict: containers ready and every readiness gate true."""
    weights_ready: bool | None
    """Our readiness gate; None while nobody has written it."""
    version_label: str | None
    """What its label says of a version (version_label.py)."""
    terminating: bool
    ends_by: float | None
    """When a pod that ends shall have ended, its grace included; None for one that does not."""
    engine_restarts: int
    trouble: str | None
    """Why a container or the scheduler does not get on, in Kubernetes' words."""
    created_at: float | None = None
    """When the API server made it; None if that is not known."""
    engine_exit: str | None = None
    """How the engine's container ended last: its exit code, and a reason that says more."""

    @property
    def has_ended(self) -> bool:
        """Whether its containers run no more, for good."""
        return self.phase in {"Failed", "Succeeded"}

    @property
    def is_active(self) -> bool:
        """Whether it has neither ended nor is terminating, as Kubernetes' controllers say it."""
        return not self.has_ended and not self.terminating

    @property
    def answers_at(self) -> str | None:
        """Where its sidecar may answer: what an ended pod still names is another's soon."""
        return None if self.has_ended else self.address


@dataclass(frozen=True, slots=True)
class Worker:
    """One ordinal of the fleet: its pod, its last report and what we are asking of it."""

    name: str
    ordinal: int
    pod: Pod | None = None
    report: WorkerReport | None = None
    """The newest report of this very pod; None before the first."""
    reachable: bool = False
    """Whether the last question was answered."""
    calling: Verb | None = None
    """The command of ours that waits for its answer; Reload stands for an update."""
    calling_for: tuple[str, str] | None = None
    """Version and operation of the command that waits, or that was answered last."""
    retry_at: float = 0.0
    """Not before this moment may that command be sent again, if it was refused or failed."""
    held: bool = False
    """Whether a trainer's pause of the fleet keeps it from serving."""
    replace_at: float = 0.0
    """Not before this moment is a pod of it that has ended replaced."""
    silence: str | None = None
    """What is told of its sidecar once it has not answered for a while."""
    heard_at: float = 0.0
    """When it answered last, by the operator's monotonic clock."""
    open_since: float = 0.0
    """When it was first heard to be open, of this time; 0 while it is not."""

    def waits_to_retry(self, moment: float) -> bool:
        """Whether the command that failed is not sent again yet."""
        return 0 < self.retry_at - moment <= RETRY_S

    def waits_to_be_replaced(self, moment: float) -> bool:
        """Whether its pod, which has ended, stands a while longer."""
        return 0 < self.replace_at - moment <= REPLACE_S

    @property
    def takes_traffic(self) -> bool:
        """Whether Kubernetes sends requests to its pod: ready, and not terminating."""
        return self.pod is not None and self.pod.ready and not self.pod.terminating

    @property
    def failure(self) -> Problem | None:
        """What failed in its last change, by its newest report."""
        return self.report.failure if self.report else None

    def failure_in(self, operation: str) -> Problem | None:
        """Return what failed in its last change, if that change belongs to the operation."""
        failure = self.failure
        return failure if failure is not None and failure.operation == operation else None

    @property
    def is_live(self) -> bool:
        """Whether commands can reach it."""
        return self.pod is not None and not self.pod.terminating and self.reachable

    @property
    def proved(self) -> str | None:
        """The version that the engine's weights are proved to be."""
        return self.report.proved if self.is_live and self.report else None

    @property
    def stage(self) -> Stage:
        """Where it stands; Down when nobody can tell."""
        return self.report.stage if self.is_live and self.report else Stage.DOWN

    @property
    def is_open(self) -> bool:
        """Whether it answers clients with a proved version."""
        return self.stage is Stage.OPEN and self.proved is not None

    @property
    def is_kept(self) -> bool:
        """Whether nothing but the fleet's pause keeps it from serving what it proved."""
        is_behind = self.stage in {Stage.PAUSED, Stage.PROVED} and self.proved is not None
        return self.held and is_behind and not self.is_busy

    @property
    def is_settled(self) -> bool:
        """Whether it serves a proved version, or would but for its trainer's pause."""
        return self.is_open or self.is_kept

    @property
    def is_changing(self) -> bool:
        """Whether a change of weights has begun and not ended, whoever asked for it."""
        if self.pod is not None and self.pod.terminating:
            # It is led no more, and may stand so for as long as its node is lost.
            return False
        if self.calling not in {None, *BESIDE}:
            return True
        running = self.report.running if self.is_live and self.report else None
        return (running is not None and running.verb not in BESIDE) or self.stage in {
            Stage.PAUSED,
            Stage.LOADING,
            Stage.LOADED,
            Stage.PROVED,
        }

    @property
    def is_busy(self) -> bool:
        """Whether a command is under way, ours or another's, that no newer one may overtake."""
        running = self.report.running if self.report else None
        return self.calling not in {None, *BESIDE} or (
            running is not None and running.verb not in BESIDE
        )

    @property
    def is_adapting(self) -> bool:
        """Whether a command about an adapter is under way, ours or another's."""
        running = self.report.running if self.report else None
        return self.calling is Verb.ADAPT or (running is not None and running.verb is Verb.ADAPT)

    def is_preparing(self, version: str, operation: str) -> bool:
        """Whether exactly this is being prepared; a newer prepare overtakes an older one."""
        if self.calling is Verb.PREPARE:
            return self.calling_for == (version, operation)
        running = self.report.running if self.report else None
        return (
            running is not None
            and running.verb is Verb.PREPARE
            and (running.version, running.operation) == (version, operation)
        )

    def failed(self, version: str, operation: str) -> bool:
        """Whether ``version`` itself failed on it: the reload or the proof, not the way there.

        What failed under another operation is history: whoever asks anew, gets a new try. An
        engine whose process ended in it has not refused it.
        """
        failure = self.failure
        return (
            failure is not None
            and (failure.version, failure.operation) == (version, operation)
            and failure.code in {Code.RELOAD_FAILED, Code.PROOF_FAILED}
            and not self.is_settled
            and not self.exits(version, operation)
        )

    def exits(self, version: str, operation: str) -> int:
        """Return how often its engine ended while it loaded ``version``; 0 once it serves."""
        exits = self.report.exits if self.report else None
        if exits is None or self.is_settled:
            return 0
        return exits.count if (exits.version, exits.operation) == (version, operation) else 0

    @property
    def is_ending(self) -> bool:
        """Whether its engine has ended in a load, and its next start has not been seen yet."""
        failure = self.failure
        return failure is not None and bool(
            self.exits(failure.version or "", failure.operation or "")
        )

    def refused(self, version: str, operation: str) -> bool:
        """Whether its last prepare, for this operation, refused the checkpoint of ``version``."""
        refusal = self.report.refusal if self.report else None
        return refusal is not None and (refusal.version, refusal.operation) == (version, operation)


@dataclass(frozen=True)
class World:
    """All that a plan may depend on.

    What every worker's step asks for is derived once: a pass stays linear in the workers.
    """

    fleet: Fleet
    workers: tuple[Worker, ...]
    """Every ordinal below replicas and every pod beyond, in ordinal order."""
    template_hash: str
    """What a pod made now would carry."""
    moment: float
    """Seconds since the epoch."""
    trouble: str | None = None
    """Why the API server refused an object of ours, in its words."""

    @cached_property
    def memo(self) -> dict[Hashable, Any]:
        """What was derived of this world, for those that ask for it once for each worker."""
        return {}

    @cached_property
    def pause(self) -> TrainerPause | None:
        """The trainer's pause that holds the fleet now."""
        return self.fleet.pause_at(self.moment)

    @cached_property
    def desired(self) -> tuple[Worker, ...]:
        """The workers that the spec asks for."""
        return tuple(w for w in self.workers if w.ordinal < self.fleet.spec.replicas)

    def is_outdated(self, worker: Worker) -> bool:
        """Whether a worker's pod was made from a template that has changed."""
        return worker.pod is not None and worker.pod.template_hash != self.template_hash

    @cached_property
    def has_outdated(self) -> bool:
        """Whether a pod is left of a template that has changed."""
        return any(map(self.is_outdated, self.desired))

    @cached_property
    def votes(self) -> Mapping[str, int]:
        """How many workers serve each version."""
        return Counter(w.proved for w in self.desired if w.is_settled and w.proved)

    @cached_property
    def proofs(self) -> Mapping[peer_proofs.Kind, Proof]:
        """What the workers showed of a version and pod template, by these two."""
        return peer_proofs.elected(
            ((w.proved, w.pod.template_hash), w.report.proof)
            for w in self.desired
            if w.proved and w.pod and w.report and w.report.proof
        )

    @cached_property
    def inherited(self) -> tuple[wanted_lora.WantedLoRA, ...]:
        """The adapters that a worker begins with where the spec names none."""
        known = [(w.pod, w.report) for w in self.desired if w.pod and w.report]
        staying = [(pod, report.adapters) for pod, report in known if not pod.terminating]
        in_traffic = [adapters for pod, adapters in staying if pod.weights_ready]
        return wanted_lora.of_trainers(in_traffic, [adapters for _, adapters in staying])


def worker_name(fleet: str, ordinal: int) -> str:
    """Name the worker of one ordinal; its pod and its DNS name are called so."""
    return f"{fleet}-{ordinal}"


def time_of(moment: float) -> str:
    """Return a moment as Kubernetes writes it, in whole seconds."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def named(raw: Raw) -> Named:
    """Return which fleet an object is, whether its spec and status can be parsed or not."""
    metadata = raw["metadata"]
    return Named(metadata["namespace"], metadata["name"], metadata["uid"])


def fleet_from(raw: Raw) -> Fleet:
    """Parse an RLInferenceFleet; raises pydantic.ValidationError when it is not one."""
    metadata = raw["metadata"]
    return Fleet(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        generation=metadata["generation"],
        spec=FleetSpec.model_validate(raw["spec"]),
        status=FleetStatus.model_validate(raw.get("status") or {}),
        deleting="deletionTimestamp" in metadata,
    )
