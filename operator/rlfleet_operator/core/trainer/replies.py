"""The fleet API's replies about a fleet and its workers. Pure.

A reply uses each worker's own report of this moment, never its entry in status.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from rlfleet_contract import paths
from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.dynamo import Discovered, Discovery, instance_of
from rlfleet_contract.worker.report import Stage, WorkerReport
from rlfleet_operator.core.manifests.owned_objects import headless_name
from rlfleet_operator.core.model.worker_phase import problem_in
from rlfleet_operator.core.model.worker_pod import Pod
from rlfleet_operator.core.model.world import Fleet, worker_name
from rlfleet_operator.core.rollout.rollout import COMPLETED, ENDED, PARTITIONED, REFUSED
from rlfleet_operator.core.trainer.models import (
    Fault,
    FleetReply,
    RolloutReply,
    Updated,
    WorkerReply,
)
from rlfleet_operator.crd.fleet_status import TrainerPause


@dataclass(frozen=True, slots=True)
class WorkerState:
    """One worker of the fleet: its pod, and its sidecar's report of this moment."""

    name: str
    pod: Pod | None
    report: WorkerReport | None
    why: str = ""
    """Why the report is missing."""
    fleet_paused: bool = False
    """Whether its trainer has paused the fleet."""

    @property
    def is_ready(self) -> bool:
        """Whether it takes traffic, by its pod."""
        return self.pod is not None and self.pod.ready and not self.pod.terminating

    def serves(self, version: str | None = None) -> bool:
        """Return whether it answers clients with the version, or with any if it is None."""
        if self.report is None or self.report.stage is not Stage.OPEN:
            return False
        proved = self.report.proved
        return proved is not None and (version is None or proved == version)

    @property
    def is_paused(self) -> bool:
        """Whether its gate is closed, it has a proved version, and no change is running."""
        report = self.report
        return (
            report is not None
            and report.stage in {Stage.PAUSED, Stage.PROVED}
            and report.proved is not None
            and (report.running is None or report.running.verb is Verb.PREPARE)
        )

    def keeps(self, version: str) -> bool:
        """Return whether it serves the version, or will when the trainer resumes the fleet."""
        is_proved = self.report is not None and self.report.proved == version
        return self.serves(version) or (self.fleet_paused and self.is_paused and is_proved)


class UpdateProgress(StrEnum):
    """How far a trainer's update has come."""

    UNDER_WAY = "UnderWay"
    COMPLETED = "Completed"
    """Every worker has proved it."""
    ENDED = "Ended"
    """It does not continue without a new request."""
    SUPERSEDED = "Superseded"
    """Another version is requested."""


def course(fleet: Fleet, version: str) -> UpdateProgress:
    """Return how far the update to a version has come, by the recorded rollout."""
    status = fleet.status
    rollout = status.rollout
    if fleet.target != version:
        return UpdateProgress.SUPERSEDED
    is_seen = (
        rollout is not None
        and status.target == version
        and (rollout.asked or rollout.to) == version
        and rollout.restart_id == fleet.spec.rollout.restart_id
        and not rollout.withdrawn
    )
    if rollout is None or not is_seen:
        return UpdateProgress.UNDER_WAY
    if rollout.phase == COMPLETED:
        return UpdateProgress.COMPLETED
    has_ended = rollout.phase in ENDED or rollout.phase in {REFUSED, PARTITIONED}
    return UpdateProgress.ENDED if has_ended else UpdateProgress.UNDER_WAY


def states_of(
    fleet: Fleet,
    pods: Mapping[str, Pod],
    reports: Mapping[str, WorkerReport | str],
    *,
    fleet_paused: bool = False,
) -> list[WorkerState]:
    """Return every worker of the spec, in the order of ordinals."""
    names = [worker_name(fleet.name, ordinal) for ordinal in range(fleet.spec.replicas)]
    found = [_state_of(name, pods.get(name), reports.get(name)) for name in names]
    return [replace(worker, fleet_paused=fleet_paused) for worker in found]


def _state_of(name: str, pod: Pod | None, said: WorkerReport | str | None) -> WorkerState:
    if isinstance(said, WorkerReport):
        return WorkerState(name, pod, said)
    return WorkerState(name, pod, None, said or ("no pod" if pod is None else "no address yet"))


# --- replies --------------------------------------------------------------------------------------


def is_proved(workers: Sequence[WorkerState], version: str) -> bool:
    """Return whether every worker proved the version and serves it, or will; False without any."""
    return _is_of_all(worker.keeps(version) for worker in workers)


def _is_of_all(found: Iterable[bool | None]) -> bool:
    """Return whether something is true of every worker; False without workers."""
    known = list(found)
    return bool(known) and all(known)


def updated(fleet: Fleet, workers: Sequence[WorkerState], version: str) -> tuple[int, Updated]:
    """Return the HTTP status and the reply to an update, at its end or after its timeout."""
    fault = _fault(fleet, workers, version)
    done = sum(worker.keeps(version) for worker in workers)
    message = f"{done} of {len(workers)} workers proved {version}"
    if fault is not None:
        message += f"; {_why(fleet, version, fault)}"
    return (fault.status if fault else 200), Updated(
        status="error" if fault else "ok",
        code=fault,
        message=message,
        retryable=fault is not None and _is_worth_asking_again(fleet, version, fault),
        version=version,
        rollout=_rollout(fleet),
        workers=[entry_of(worker, fleet, is_well=worker.keeps(version)) for worker in workers],
    )


def nothing_loaded(fleet: Fleet, workers: Sequence[WorkerState]) -> tuple[int, Updated]:
    """Return the HTTP status and the reply to an update without a directory.

    A fleet without workers is an error here, too.
    """
    fault = None if workers else Fault.NO_WORKERS
    return (fault.status if fault else 200), Updated(
        status="error" if fault else "ok",
        code=fault,
        message="nothing was loaded: weight_dir names no directory",
        retryable=fault is not None,
        version=_applied(workers),
        rollout=_rollout(fleet),
        workers=[entry_of(worker, fleet, is_well=worker.report is not None) for worker in workers],
    )


def _fault(fleet: Fleet, workers: Sequence[WorkerState], version: str) -> Fault | None:
    at = course(fleet, version)
    if at is UpdateProgress.SUPERSEDED:
        return Fault.SUPERSEDED
    if not workers:
        return Fault.NO_WORKERS
    is_done = at is UpdateProgress.COMPLETED and is_proved(workers, version)
    return None if is_done else Fault.NOT_PROVED


def _is_worth_asking_again(fleet: Fleet, version: str, fault: Fault) -> bool:
    """Return whether the same request may succeed later: not after a stopped rollout."""
    rollout = fleet.status.rollout
    is_over = (
        rollout is not None
        and course(fleet, version) is UpdateProgress.ENDED
        and rollout.phase != REFUSED
    )
    return fault.retryable and not is_over


def _why(fleet: Fleet, version: str, fault: Fault) -> str:
    if fault is Fault.SUPERSEDED:
        source = "spec.weightVersion" if fleet.spec.weight_version else _other_source(fleet)
        return f"superseded: {source} sets {fleet.target or 'no version'}"
    if fault is Fault.NO_WORKERS:
        return "the fleet has no workers: spec.replicas is 0"
    rollout = fleet.status.rollout
    if rollout is None or course(fleet, version) is UpdateProgress.UNDER_WAY:
        return "the rollout continues; send the same request to wait for it"
    if rollout.phase == COMPLETED:
        return "some are catching up; send the same request to wait for them"
    return f"rollout {rollout.id} is {rollout.phase}: {rollout.message}"


def _other_source(fleet: Fleet) -> str:
    return "spec.weights.follow" if fleet.follows else "a later request"


def state(
    fleet: Fleet, workers: Sequence[WorkerState], pause: TrainerPause | None = None
) -> FleetReply:
    """Return the reply to GET state; ``pause`` is the trainer's active one."""
    asker: Literal["spec", "trainer"] = "trainer" if fleet.is_free else "spec"
    return FleetReply(
        namespace=fleet.namespace,
        fleet=fleet.name,
        ready=_is_of_all(w.is_ready and w.serves() for w in workers),
        paused=_is_of_all(_is_paused(w) for w in workers),
        paused_by=None if pause is None else "trainer",
        paused_until=None if pause is None else pause.until,
        in_flight=sum(w.report.in_flight for w in workers if w.report),
        desired_version=fleet.target,
        desired_by=None if fleet.target is None else asker,
        applied_version=_applied(workers),
        rollout=_rollout(fleet),
        workers=[entry_of(worker, fleet, is_well=worker.report is not None) for worker in workers],
    )


def _is_paused(worker: WorkerState) -> bool | None:
    report = worker.report
    if report is None:
        return None
    # A late joiner that has proved behind its gate was never paused, but waits like the others.
    return report.paused_s is not None or report.stage is Stage.PROVED


def _applied(workers: Sequence[WorkerState]) -> str | None:
    proved = {w.report.proved if w.report else None for w in workers}
    return proved.pop() if len(proved) == 1 else None


def _rollout(fleet: Fleet) -> RolloutReply | None:
    known = fleet.status.rollout
    if known is None:
        return None
    return RolloutReply(id=known.id, to=known.to, phase=known.phase, message=known.message)


def entry_of(worker: WorkerState, fleet: Fleet, *, is_well: bool) -> WorkerReply:
    """Return the entry of one worker in a reply."""
    report = worker.report
    if report is None:
        return WorkerReply(
            name=worker.name, status="error", ready=worker.is_ready, message=worker.why
        )
    problem = problem_in(report, fleet)
    return WorkerReply(
        name=worker.name,
        status="ok" if is_well else "error",
        ready=worker.is_ready,
        stage=report.stage,
        version=report.proved,
        paused=_is_paused(worker),
        in_flight=report.in_flight,
        message=f"{problem.code}: {problem.message}" if problem else None,
    )


def discovery(fleet: Fleet, workers: Sequence[WorkerState], admin_port: int) -> Discovery:
    """Return the reply to GET workers, which lists those with a pod."""
    found = [_discovered(fleet, w, w.pod, admin_port) for w in workers if w.pod is not None]
    return Discovery(namespace=fleet.namespace, workers=found)


def _discovered(fleet: Fleet, worker: WorkerState, pod: Pod, admin_port: int) -> Discovered:
    host = f"{worker.name}.{headless_name(fleet.name)}.{fleet.namespace}.svc"
    scheme = "http" if pod.tls_secret is None else "https"
    sidecar = f"{scheme}://{host}:{admin_port}"
    return Discovered(
        namespace=fleet.namespace,
        component=fleet.name,
        instance_id=instance_of(pod.uid),
        request_plane_url=f"http://{host}:{paths.ENGINE_PORT}",
        system_url=sidecar,
        admin_base_url=sidecar,
        model=fleet.spec.model.name,
        world_size=fleet.spec.engine.tensor_parallel_size,
        error=worker.why or None,
    )
