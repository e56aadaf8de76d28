"""One fleet as observed at one moment, as frozen values.

fleet.py and pod.py parse raw Kubernetes objects once; all else gets only valid, typed values.
"""

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from rlfleet_contract.worker.commands import BESIDE, Verb
from rlfleet_contract.worker.problems import Code, Problem
from rlfleet_contract.worker.proof import Proof
from rlfleet_contract.worker.report import Stage, WorkerReport
from rlfleet_operator.core.model import peer_proofs, wanted_lora
from rlfleet_operator.core.model.worker_pod import Pod
from rlfleet_operator.crd.fleet_spec import GROUP, FleetSpec, Follow
from rlfleet_operator.crd.fleet_status import FleetStatus, TrainerPause, WorkerStatus

FLEET_LABEL = f"{GROUP}/fleet"
ORDINAL_LABEL = f"{GROUP}/ordinal"
VERSION_LABEL = f"{GROUP}/weight-version"
TEMPLATE_ANNOTATION = f"{GROUP}/template-hash"
SELF_TEST_ANNOTATION = f"{GROUP}/self-test"
READINESS_GATE = f"{GROUP}/WeightsReady"
ENGINE_CONTAINER = "engine"
SIDECAR_CONTAINER = "sidecar"
ADMIN_PORT_NAME = "admin"
TLS_VOLUME = "sidecar-tls"
"""The sidecar's port and the volume with its certificate, in a worker's pod."""

RETRY_S, REPLACE_S = 15.0, 300.0
"""Longest back-off of a command and of a pod's replacement. A moment further ahead comes from a
clock that was set back, and is ignored."""
RUNNING = "Running"
"""The phase of a pod whose containers run."""

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Identity:
    """Namespace, name and UID of a fleet; known even if its spec cannot be parsed."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Fleet(Identity):
    """One RLInferenceFleet: its spec and its last written status."""

    generation: int
    spec: FleetSpec
    status: FleetStatus
    deleting: bool = False
    created_at: float | None = None
    """When the API server created it, in seconds since the epoch; None if unknown."""

    @property
    def target(self) -> str | None:
        """The requested version: the spec's, else the store's or a trainer's; None without any."""
        asked = self.status.followed if self.follows else self.status.trainer_target
        return self.spec.weight_version or (asked.version if asked else None)

    @property
    def follows(self) -> bool:
        """Whether the spec has the fleet follow its trainer, unless it names a version too."""
        return self.spec.weights is not None and self.spec.weights.follow is Follow.LATEST

    @property
    def is_free(self) -> bool:
        """Whether trainers may request versions: the spec neither names nor follows one."""
        return self.spec.weight_version is None and not self.follows

    def asks_for(self, version: str | None) -> bool:
        """Return whether a version is the target, or one that the current rollout leads to.

        Without a target every version counts, because trainers then drive the workers directly.
        """
        recorded = self.status.rollout
        led_to = {recorded.to, recorded.from_version, recorded.kept} if recorded else set()
        return self.target is None or version in {self.target, *led_to}

    def pause_at(self, moment: float) -> TrainerPause | None:
        """Return the trainer's pause in effect at that moment; None if there is none.

        A version in the spec, or one that is followed, has precedence and ends the pause.
        """
        pause = self.status.trainer_pause
        if pause is None or pause.ending or self.deleting or not self.is_free:
            return None
        return pause if moment < pause.until_epoch else None


@dataclass(frozen=True)
class Worker:
    """One ordinal of the fleet: its pod, its last report and the operator's command to it.

    A pass asks each property many times, and an unchanged worker is the same object in the next
    pass. So what follows from the fields is computed once.
    """

    name: str
    ordinal: int
    pod: Pod | None = None
    report: WorkerReport | None = None
    """The newest report of this pod; None before the first."""
    reachable: bool = False
    """Whether the sidecar answered the last state request, or has sent a report since."""
    calling: Verb | None = None
    """The operator's command under way; Reload stands for an update."""
    calling_for: tuple[str, str] | None = None
    """Version and operation of the command under way, or of the last one."""
    retry_at: float = 0.0
    """The earliest moment to retry that command after it failed."""
    fleet_paused: bool = False
    """Whether a trainer's pause of the fleet is in effect."""
    replace_at: float = 0.0
    """The earliest moment to replace its pod after the pod has ended."""
    silence: str | None = None
    """The message for status once its sidecar has not answered for a while."""
    answered_at: float = 0.0
    """When its sidecar answered last, by the operator's monotonic clock; 0 if nothing asks."""
    open_since: float = 0.0
    """When it was first observed open, without an interruption; 0 while it is not."""
    rejections: tuple[Problem, ...] = ()
    """The last rejection of each version since the last prepare that succeeded, if the operator saw
    them: the report has the newest alone."""
    last: WorkerStatus | None = None
    """Its state in status; None once it has answered this operator, or if its pod is new."""

    def waits_to_retry(self, moment: float) -> bool:
        """Whether the failed command is still in back-off."""
        return 0 < self.retry_at - moment <= RETRY_S

    def waits_to_be_replaced(self, moment: float) -> bool:
        """Whether the replacement of its ended pod is still in back-off."""
        return 0 < self.replace_at - moment <= REPLACE_S

    @cached_property
    def takes_traffic(self) -> bool:
        """Whether Kubernetes sends requests to its pod: ready, and not terminating."""
        return self.pod is not None and self.pod.ready and not self.pod.terminating

    @cached_property
    def failure(self) -> Problem | None:
        """The failure of its last change, from its newest report."""
        return self.report.failure if self.report else None

    def failure_in(self, operation: str) -> Problem | None:
        """Return the failure of its last change, if that belongs to the operation."""
        failure = self.failure
        return failure if failure is not None and failure.operation == operation else None

    @cached_property
    def is_live(self) -> bool:
        """Whether commands can reach it."""
        return self.pod is not None and not self.pod.terminating and self.reachable

    @cached_property
    def proved(self) -> str | None:
        """The version of the engine's weights, once proved."""
        return self.report.proved if self.is_live and self.report else None

    @cached_property
    def stage(self) -> Stage:
        """Its stage in the sidecar's table; Down if the worker is unreachable."""
        return self.report.stage if self.is_live and self.report else Stage.DOWN

    @cached_property
    def is_open(self) -> bool:
        """Whether it serves clients with a proved version."""
        return self.stage is Stage.OPEN and self.proved is not None

    @cached_property
    def is_kept(self) -> bool:
        """Whether only the trainer's pause of the fleet keeps it from serving."""
        is_behind = self.stage in {Stage.PAUSED, Stage.PROVED} and self.proved is not None
        return self.fleet_paused and is_behind and not self.is_busy

    @cached_property
    def is_settled(self) -> bool:
        """Whether it serves a proved version, or will after the trainer's pause."""
        return self.is_open or self.is_kept

    @cached_property
    def is_changing(self) -> bool:
        """Whether a change of weights is under way, by any caller's command."""
        if self.pod is not None and self.pod.terminating:
            # It gets no commands, and stays for as long as its node is lost.
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

    @cached_property
    def is_busy(self) -> bool:
        """Whether a command that excludes others is under way, the operator's or another's."""
        running = self.report.running if self.report else None
        return self.calling not in {None, *BESIDE} or (
            running is not None and running.verb not in BESIDE
        )

    @cached_property
    def is_left_paused(self) -> bool:
        """Whether it idles in a pause and has no version to resume with."""
        return self.stage is Stage.PAUSED and self.proved is None and not self.is_busy

    @cached_property
    def is_adapting(self) -> bool:
        """Whether a LoRA command is under way, the operator's or another's."""
        running = self.report.running if self.report else None
        return self.calling is Verb.ADAPT or (running is not None and running.verb is Verb.ADAPT)

    @cached_property
    def is_plain(self) -> bool:
        """Whether it just takes traffic with a proved version, as most of a large fleet do."""
        pod, report = self.pod, self.report
        if pod is None or report is None or not pod.is_plain or not self.is_open:
            return False
        is_idle = self.calling is None and report.running is None and report.is_plain
        return is_idle and not (
            self.retry_at or self.replace_at or self.silence or self.fleet_paused
        )

    def is_preparing(self, version: str, operation: str) -> bool:
        """Whether this prepare is under way; any other one may be replaced."""
        if self.calling is Verb.PREPARE:
            return self.calling_for == (version, operation)
        running = self.report.running if self.report else None
        return (
            running is not None
            and running.verb is Verb.PREPARE
            and (running.version, running.operation) == (version, operation)
        )

    def failed(self, version: str, operation: str) -> bool:
        """Whether the reload or the proof of ``version`` failed in this operation.

        A failure in another operation does not count, so a new rollout tries again. Nor does an
        engine process that exited during the load.
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
        """Return how often its engine exited while it loaded ``version``; 0 once it serves."""
        exits = self.report.exits if self.report else None
        if exits is None or self.is_settled:
            return 0
        return exits.count if (exits.version, exits.operation) == (version, operation) else 0

    @cached_property
    def is_ending(self) -> bool:
        """Whether its engine has exited during a load and has not restarted yet.

        An engine that has, and fails to pause for the same load, has both on record as well.
        """
        failure = self.failure
        if failure is None or self.stage not in {Stage.DOWN, Stage.DOUBT}:
            return False
        return bool(self.exits(failure.version or "", failure.operation or ""))

    def refused(self, version: str, operation: str) -> bool:
        """Whether its last prepare in this operation rejected the checkpoint of ``version``."""
        refusal = self.report.refusal if self.report else None
        return refusal is not None and (refusal.version, refusal.operation) == (version, operation)

    def rejection_of(self, version: str, operation: str) -> Problem | None:
        """Return its last rejection of ``version`` in this operation, also before another one's."""
        newest = (self.report.refusal,) if self.report and self.report.refusal else ()
        about = version, operation
        found = (p for p in (*newest, *self.rejections) if (p.version, p.operation) == about)
        return next(found, None)


@dataclass(frozen=True)
class World:
    """The complete input of a plan.

    Values that every worker's step needs are cached, so that a pass stays linear in the workers.
    """

    fleet: Fleet
    workers: tuple[Worker, ...]
    """Every ordinal below replicas and every pod beyond, in ordinal order."""
    template_hash: str
    """The hash that a pod created now would get."""
    moment: float
    """Seconds since the epoch."""
    trouble: str | None = None  # The API server's words about an object that it rejected.
    token_revision: str | None = None  # Of the token that the operator sends.
    asked_since: float = 0.0
    """Since when the target is the newest, in seconds since the epoch; 0 if it never changed."""

    @cached_property
    def memo(self) -> dict[Hashable, Any]:
        """A cache for functions that compute the same of this world for every worker."""
        return {}

    @cached_property
    def pause(self) -> TrainerPause | None:
        """The trainer's pause in effect now."""
        return self.fleet.pause_at(self.moment)

    @cached_property
    def desired(self) -> tuple[Worker, ...]:
        """The workers with an ordinal below spec.replicas."""
        return tuple(w for w in self.workers if w.ordinal < self.fleet.spec.replicas)

    @cached_property
    def surplus(self) -> tuple[Worker, ...]:
        """The workers whose ordinal is not below spec.replicas."""
        return tuple(w for w in self.workers if w.ordinal >= self.fleet.spec.replicas)

    @cached_property
    def exceptional(self) -> tuple[Worker, ...]:
        """The desired workers that are not plain: only they start, change, fail or are lost."""
        return tuple(w for w in self.desired if not w.is_plain)

    def is_outdated(self, worker: Worker) -> bool:
        """Whether the pod template has changed since a worker's pod was created.

        Of a pod without its annotation that is unknown. What removed it may also remove its
        successor's: to replace the pod would never end.
        """
        return worker.pod is not None and worker.pod.template_hash not in {"", self.template_hash}

    @cached_property
    def has_outdated(self) -> bool:
        """Whether a pod of an earlier template remains."""
        return any(map(self.is_outdated, self.desired))

    @cached_property
    def votes(self) -> Mapping[str, int]:
        """The number of workers that serve each version."""
        return Counter(w.proved for w in self.desired if w.is_settled and w.proved)

    @cached_property
    def proofs(self) -> Mapping[peer_proofs.Kind, Proof]:
        """The proof to compare with, by version and pod template."""
        return peer_proofs.elected(
            ((w.proved, w.pod.template_hash), w.report.proof)
            for w in self.desired
            if w.proved and w.pod and w.pod.template_hash and w.report and w.report.proof
        )

    @cached_property
    def inherited(self) -> tuple[wanted_lora.WantedLoRA, ...]:
        """The adapters of a new worker's peers, for a fleet whose spec names none."""
        known = [(w.pod, w.report) for w in self.desired if w.pod and w.report]
        staying = [(pod, report.adapters) for pod, report in known if not pod.terminating]
        in_traffic = [adapters for pod, adapters in staying if pod.weights_ready]
        return wanted_lora.of_trainers(in_traffic, [adapters for _, adapters in staying])


def worker_name(fleet: str, ordinal: int) -> str:
    """Return the name of one ordinal's worker, which is also that of its pod and its DNS name."""
    return f"{fleet}-{ordinal}"


def time_of(moment: float) -> str:
    """Return seconds since the epoch as Kubernetes writes a time, in whole seconds."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
