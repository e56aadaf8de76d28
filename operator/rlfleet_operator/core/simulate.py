"""A model fleet that carries out plans: for tests, previews and the docs' examples.

It stands for everything outside the planner: the API server, the kubelet and
the sidecars. A version is Good, is Refused by the checkpoint check, or Breaks
the engine that loads it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from rlfleet_contract.api import BASE_VERSION
from rlfleet_contract.loaded import AdapterReport
from rlfleet_contract.models import Change, Stage, Timings, Verb, WorkerReport
from rlfleet_contract.problems import Code, Problem
from rlfleet_contract.proof import Evidence, Proof
from rlfleet_operator.core.actions import (
    Action,
    AdapterCommand,
    Command,
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
from rlfleet_operator.core.plan import Plan, plan
from rlfleet_operator.core.status import status_of
from rlfleet_operator.core.worker import Phase
from rlfleet_operator.core.world import Fleet, Pod, Worker, World, worker_name
from rlfleet_operator.resource_status import WorkerStatus


class Fate(StrEnum):
    """What becomes of a worker that is given a version."""

    GOOD = "Good"
    REFUSED = "Refused"
    BREAKS = "Breaks"


@dataclass(frozen=True, slots=True)
class Step:
    """One pass over the fleet: what was seen, and what was decided."""

    world: World
    plan: Plan


def run(world: World, fates: Mapping[str, Fate], *, limit: int = 200) -> Iterator[Step]:
    """Yield passes until nothing is left to do; raises RuntimeError after ``limit`` passes."""
    for _ in range(limit):
        world = settled(world)
        step = Step(world, plan(world))
        yield step
        after = recorded(world, step.plan)
        for action in step.plan.actions:
            after = carried_out(after, action, fates)
        if settled(after) == world:
            return
        world = replace(after, moment=after.moment + 60)
    raise RuntimeError(f"no end after {limit} passes: {world}")


def recorded(world: World, step: Plan) -> World:
    """Return the world after its status was written."""
    status = status_of(world, step.rollout)
    return replace(world, fleet=replace(world.fleet, status=status))


def settled(world: World) -> World:
    """Return the world after the kubelet and the engines did what they do by themselves."""
    wanted = world.fleet.spec.replicas
    workers = {w.ordinal: w for w in world.workers}
    for ordinal in range(wanted):
        workers.setdefault(ordinal, Worker(worker_name(world.fleet.name, ordinal), ordinal))
    kept = [_settled(w) for _, w in sorted(workers.items()) if w.pod or w.ordinal < wanted]
    is_held = world.fleet.pause_at(world.moment) is not None
    return replace(world, workers=tuple(replace(w, held=is_held) for w in kept))


def _settled(worker: Worker) -> Worker:
    if worker.pod is None:
        return Worker(worker.name, worker.ordinal)
    report = worker.report
    if report is None or report.stage is Stage.DOWN:
        report = booted(worker.pod.uid)
    is_ready = bool(worker.pod.weights_ready) and report.stage is not Stage.DOUBT
    return replace(
        worker,
        pod=replace(worker.pod, ready=is_ready and report.proved is not None),
        report=report,
        reachable=True,
        calling=None,
    )


_AS_SHOWN = {
    Phase.SERVING: Stage.OPEN,
    Phase.PAUSED: Stage.OPEN,
    Phase.QUARANTINED: Stage.DOUBT,
}


def as_told(fleet: Fleet, template_hash: str) -> tuple[Worker, ...]:
    """Return the workers that a fleet's status tells of; those it leaves out serve as the rest."""
    known = {worker.name: worker for worker in fleet.status.workers}
    unlisted = WorkerStatus(name="", phase=Phase.SERVING, version=fleet.status.serving or None)
    rest = dict.fromkeys(_names(fleet), unlisted) if fleet.status.workers_truncated else {}
    told = rest | known
    return tuple(
        _as_told(fleet, ordinal, told[name], template_hash)
        if name in told
        else Worker(name, ordinal)
        for ordinal, name in enumerate(_names(fleet))
    )


def _names(fleet: Fleet) -> list[str]:
    return [worker_name(fleet.name, ordinal) for ordinal in range(fleet.spec.replicas)]


def _as_told(fleet: Fleet, ordinal: int, told: WorkerStatus, template_hash: str) -> Worker:
    name = worker_name(fleet.name, ordinal)
    stage = _AS_SHOWN.get(Phase(told.phase), Stage.CLOSED)
    report = booted(name).model_copy(
        update={"stage": stage, "proved": told.version, "installed": told.version}
    )
    pod = replace(_pod(name, ordinal, fleet.uid, template_hash), weights_ready=told.ready)
    pod = replace(pod, ready=told.ready, version_label=told.version)
    return Worker(name, ordinal, pod, report=report, reachable=True)


def booted(session: str) -> WorkerReport:
    """Return the report of a worker whose engine has just come up."""
    return WorkerReport(session=session, boot=session, stage=Stage.CLOSED, installed=BASE_VERSION)


def carried_out(world: World, action: Action, fates: Mapping[str, Fate]) -> World:
    """Return the world after one action."""
    workers = tuple(_after(world, worker, action, fates) for worker in world.workers)
    return replace(world, workers=workers)


def _after(world: World, worker: Worker, action: Action, fates: Mapping[str, Fate]) -> Worker:
    match action:
        case CreatePod(ordinal) if ordinal == worker.ordinal:
            return replace(worker, pod=new_pod(world, worker))
        case DeletePod(name) if name == worker.name:
            return Worker(worker.name, worker.ordinal)
        case MarkPod(name) if name == worker.name and worker.pod is not None:
            marked = replace(worker.pod, weights_ready=action.ready, version_label=action.version)
            return replace(worker, pod=marked)
        case LoadAdapter(name) | UnloadAdapter(name) if name == worker.name:
            return _adapted(worker, action)
        case Prepare(name) | Update(name) | Resume(name) | Pause(name) | Flush(name) if (
            name == worker.name
        ):
            return _obeyed(worker, action, fates)
        case _:
            return worker


def _adapted(worker: Worker, command: AdapterCommand) -> Worker:
    """Carry out a command about an adapter; each can be loaded here."""
    if worker.report is None:
        return worker
    kept = [one for one in worker.report.adapters if one.name != command.name]
    if isinstance(command, LoadAdapter):
        loaded = {"name": command.name, "version": command.version, "path": command.path}
        kept.append(AdapterReport(**loaded, is_loaded=True, is_declared=True))
    return replace(worker, report=worker.report.model_copy(update={"adapters": kept}))


def _obeyed(worker: Worker, command: Command, fates: Mapping[str, Fate]) -> Worker:
    match command:
        case Prepare():
            return _prepared(worker, command, fates)
        case Update():
            return _updated(worker, command, fates)
        case Resume():
            return _resumed(worker, command)
        case Pause():
            return _paused(worker)
        case Flush():
            return _told(worker, flushed=command.operation)


def new_pod(world: World, worker: Worker) -> Pod:
    """Return the pod that the kubelet would show for a worker just created."""
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
        engine_restarts=0,
        trouble=None,
    )


def _prepared(worker: Worker, action: Prepare, fates: Mapping[str, Fate]) -> Worker:
    if worker.report is None:
        return worker
    if fates.get(action.version, Fate.GOOD) is Fate.REFUSED:
        refusal = Problem.of(
            Code.CHECKPOINT_INVALID,
            "model.safetensors is truncated",
            version=action.version,
            operation=action.operation,
        )
        return replace(worker, report=worker.report.model_copy(update={"refusal": refusal}))
    change = {"prepared": action.version, "refusal": None}
    return replace(worker, report=worker.report.model_copy(update=change))


def _proof(worker: Worker, version: str) -> Proof:
    return Proof(
        version=version,
        boot=(worker.report.boot if worker.report else None) or "",
        verified_by=(Evidence.PROBE,),
        tokens=f"answers of {version}"[:64],
    )


def _updated(worker: Worker, action: Update, fates: Mapping[str, Fate]) -> Worker:
    report = worker.report
    if report is None or report.prepared != action.version:
        return worker
    if report.proved == action.version and report.stage in {Stage.PROVED, Stage.OPEN}:
        return _opened(worker, action) if action.through is Verb.RESUME else worker
    if action.through is Verb.PAUSE:
        is_paused = report.stage in {Stage.OPEN, Stage.PROVED}
        change: dict[str, object] = {"stage": Stage.PAUSED, "paused_s": 0.0} if is_paused else {}
        return replace(worker, report=report.model_copy(update=change))
    if fates.get(action.version, Fate.GOOD) is Fate.BREAKS:
        return _broken(worker, action)
    loaded = {
        "stage": Stage.PROVED,
        "proved": action.version,
        "proof": _proof(worker, action.version),
        "installed": action.version,
        "failure": None,
    }
    worker = replace(worker, report=report.model_copy(update=loaded))
    return _opened(worker, action) if action.through is Verb.RESUME else worker


def _broken(worker: Worker, action: Update) -> Worker:
    failure = Problem.of(
        Code.PROOF_FAILED,
        "the probe differs",
        version=action.version,
        operation=action.operation,
    )
    change: dict[str, object] = {
        "stage": Stage.DOUBT,
        "proved": None,
        "proof": None,
        "installed": action.version,
        "failure": failure,
        "paused_s": None,
    }
    report = worker.report.model_copy(update=change) if worker.report else None
    return replace(worker, report=report)


def _opened(worker: Worker, action: Update) -> Worker:
    if worker.report is None or worker.report.stage is Stage.OPEN:
        return worker
    change: dict[str, object] = {
        "stage": Stage.OPEN,
        "paused_s": None,
        "last_change": Change(
            operation=action.operation,
            version=action.version,
            finished_at=0.0,
            timings=Timings(window_s=0.25),
        ),
    }
    return replace(worker, report=worker.report.model_copy(update=change))


def _paused(worker: Worker) -> Worker:
    is_able = worker.report is not None and worker.report.stage in {Stage.OPEN, Stage.PROVED}
    return _told(worker, stage=Stage.PAUSED, paused_s=0.0) if is_able else worker


def _told(worker: Worker, **change: object) -> Worker:
    report = worker.report.model_copy(update=change) if worker.report else None
    return replace(worker, report=report)


def _resumed(worker: Worker, action: Resume) -> Worker:
    report = worker.report
    if report is None or report.proved != action.version:
        return worker
    if report.stage not in {Stage.PAUSED, Stage.PROVED}:
        return worker
    change: dict[str, object] = {"stage": Stage.OPEN, "paused_s": None}
    return replace(worker, report=report.model_copy(update=change))
