"""A simulated fleet that executes plans: for tests, previews and the docs' examples.

It simulates everything outside the planner: the API server, the kubelet and the sidecars
(model_worker.py).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from rlfleet_contract.paths import BASE_VERSION
from rlfleet_contract.worker.report import Stage, WorkerReport
from rlfleet_operator.core.model.actions import (
    Action,
    CreatePod,
    DeletePod,
    Flush,
    LoadAdapter,
    MarkPod,
    Pause,
    Prepare,
    Resume,
    UnloadAdapter,
    Update,
)
from rlfleet_operator.core.model.version_label import label_of
from rlfleet_operator.core.model.worker_phase import Phase
from rlfleet_operator.core.model.worker_pod import Pod
from rlfleet_operator.core.model.world import Fleet, Worker, World, worker_name
from rlfleet_operator.core.plan import Plan, plan
from rlfleet_operator.core.simulation.model_worker import Effect, after_lora, after_weights
from rlfleet_operator.core.status.fleet import status_of
from rlfleet_operator.crd.fleet_status import FleetStatus, WorkerStatus


@dataclass(frozen=True, slots=True)
class FleetStep:
    """One pass over the fleet: its input and its plan."""

    world: World
    plan: Plan


def run(world: World, fates: Mapping[str, Effect], *, limit: int = 200) -> Iterator[FleetStep]:
    """Yield passes until a pass changes nothing; raises RuntimeError after ``limit`` passes."""
    for _ in range(limit):
        world = settled(world)
        step = FleetStep(world, plan(world))
        yield step
        after = recorded(world, step.plan)
        for action in step.plan.actions:
            after = carried_out(after, action, fates)
        if settled(after) == world:
            return
        world = replace(after, moment=after.moment + 60)
    raise RuntimeError(f"simulation not finished after {limit} passes: {world}")


def recorded(world: World, step: Plan) -> World:
    """Return the world after its status is written."""
    status = status_of(world, step.rollout)
    return replace(world, fleet=replace(world.fleet, status=status))


def settled(world: World) -> World:
    """Return the world after the kubelet and the engines have acted without a command."""
    wanted = world.fleet.spec.replicas
    workers = {w.ordinal: w for w in world.workers}
    for ordinal in range(wanted):
        workers.setdefault(ordinal, Worker(worker_name(world.fleet.name, ordinal), ordinal))
    kept = [_settled(w) for _, w in sorted(workers.items()) if w.pod or w.ordinal < wanted]
    is_paused = world.fleet.pause_at(world.moment) is not None
    return replace(world, workers=tuple(replace(w, fleet_paused=is_paused) for w in kept))


def _settled(worker: Worker) -> Worker:
    if worker.pod is None:
        return Worker(worker.name, worker.ordinal)
    report = worker.report
    if report is None or report.stage is Stage.DOWN:
        known = {} if report is None else {"prepared": report.prepared, "exits": report.exits}
        report = booted(worker.pod.uid).model_copy(update=known)
    is_ready = bool(worker.pod.weights_ready) and report.stage is not Stage.DOUBT
    return replace(
        worker,
        pod=replace(worker.pod, ready=is_ready and report.proved is not None),
        report=report,
        reachable=True,
        calling=None,
    )


_STAGE_OF: dict[str, Stage] = {
    Phase.SERVING: Stage.OPEN,
    Phase.PREPARING: Stage.OPEN,
    Phase.PAUSED: Stage.OPEN,
    Phase.QUARANTINED: Stage.DOUBT,
}


def workers_from_status(fleet: Fleet, template_hash: str) -> tuple[Worker, ...]:
    """Return the workers by the fleet's status; those that a truncated status omits serve."""
    known = {worker.name: worker for worker in fleet.status.workers}
    unlisted = WorkerStatus(name="", phase=Phase.SERVING, version=fleet.status.serving or None)
    rest = dict.fromkeys(_names(fleet), unlisted) if fleet.status.workers_truncated else {}
    shown = rest | known
    return tuple(
        _from_status(fleet, ordinal, shown[name], template_hash)
        if name in shown
        else Worker(name, ordinal)
        for ordinal, name in enumerate(_names(fleet))
    )


def _names(fleet: Fleet) -> list[str]:
    return [worker_name(fleet.name, ordinal) for ordinal in range(fleet.spec.replicas)]


def _from_status(fleet: Fleet, ordinal: int, shown: WorkerStatus, template_hash: str) -> Worker:
    name = worker_name(fleet.name, ordinal)
    serves = shown.ready and shown.version is not None
    # A newer operator may have written a phase that this release does not know.
    stage = _STAGE_OF.get(shown.phase, Stage.OPEN if serves else Stage.CLOSED)
    report = booted(name).model_copy(
        update={
            "stage": stage,
            "proved": shown.version,
            "installed": shown.version,
            "prepared_bytes": _prepared_bytes(fleet.status),
        }
    )
    pod = replace(_pod(name, ordinal, fleet.uid, template_hash), weights_ready=shown.ready)
    pod = replace(pod, ready=shown.ready, version_label=label_of(shown.version))
    return Worker(name, ordinal, pod, report=report, reachable=True)


def _prepared_bytes(status: FleetStatus) -> int | None:
    """Return the bytes that the last prepare read, from the newest rollout that has them."""
    newest = status.rollout.prepared_bytes if status.rollout else None
    sizes = (newest, *(past.prepared_bytes for past in status.history))
    return next((size for size in sizes if size is not None), None)


def booted(session: str) -> WorkerReport:
    """Return the report of a worker whose engine has just booted."""
    return WorkerReport(session=session, boot=session, stage=Stage.CLOSED, installed=BASE_VERSION)


def carried_out(world: World, action: Action, fates: Mapping[str, Effect]) -> World:
    """Return the world after one action."""
    workers = tuple(_after(world, worker, action, fates) for worker in world.workers)
    return replace(world, workers=workers)


def _after(world: World, worker: Worker, action: Action, fates: Mapping[str, Effect]) -> Worker:
    match action:
        case CreatePod(ordinal) if ordinal == worker.ordinal:
            return replace(worker, pod=new_pod(world, worker))
        case DeletePod(name) if name == worker.name:
            return Worker(worker.name, worker.ordinal)
        case MarkPod(name) if name == worker.name and worker.pod is not None:
            label = label_of(action.version)
            marked = replace(worker.pod, weights_ready=action.ready, version_label=label)
            return replace(worker, pod=marked)
        case LoadAdapter(name) | UnloadAdapter(name) if name == worker.name:
            return after_lora(worker, action)
        case Prepare(name) | Update(name) | Resume(name) | Pause(name) | Flush(name) if (
            name == worker.name
        ):
            return after_weights(worker, action, fates)
        case _:
            return worker


def new_pod(world: World, worker: Worker) -> Pod:
    """Return a worker's new pod once the kubelet runs it."""
    pod = _pod(worker.name, worker.ordinal, world.fleet.uid, world.template_hash)
    return replace(pod, uid=f"{worker.name}@{world.moment}")


def _pod(name: str, ordinal: int, owner_uid: str, template_hash: str) -> Pod:
    return Pod(
        name=name,
        uid=name,
        ordinal=ordinal,
        owner_uid=owner_uid,
        template_hash=template_hash,
        address="10.0.0.1",
        phase="Running",
        ready=False,
        weights_ready=None,
        version_label=None,
        terminating=False,
        ends_by=None,
        engine_restarts=0,
        trouble=None,
    )
