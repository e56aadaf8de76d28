"""The operator of the model: what it knows, and what the real planner makes of it.

``plan`` and ``status_of`` are the real ones. What workers/pool.py and reconcile/reconciler.py
do around them is modelled here: what is known of a worker is its last report, which may be old.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.problems import Problem
from rlfleet_contract.worker.report import Exits, Running, Stage, WorkerReport
from rlfleet_operator.core.model.actions import Action, Flush, Pause, Prepare, Resume, Update
from rlfleet_operator.core.model.actions import WeightsCommand as Sent
from rlfleet_operator.core.model.worker_pod import Pod
from rlfleet_operator.core.model.world import Fleet, Worker, World, worker_name
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.rollout.rollout import ENDED, Reason
from rlfleet_operator.core.status.fleet import status_of
from rlfleet_operator.crd.fleet_status import FleetStatus
from rlfleet_operator.crd.rollout_status import RolloutStatus
from rlfleet_sidecar.state.stage_machine import State
from tests import fleets
from tests.model.local import RESCUE, UPDATE, Command, Local, Mark, ViolationError

MOMENT = 1e9
LONG = 1e6
LONG_AGO = "2001-01-01T00:00:00Z"
TEMPLATE = "t"
NAME = "qwen"
_WHAT = {
    Prepare: Verb.PREPARE,
    Update: UPDATE,
    Resume: Verb.RESUME,
    Pause: Verb.PAUSE,
    Flush: Verb.FLUSH,
}
WRITTEN_ONLY: dict[str, Any] = {
    "replicas": 0,
    "ready_replicas": 0,
    "proved_replicas": 0,
    "quarantined_replicas": 0,
    "selector": "",
    "proved": "",
    "workers": [],
    "workers_truncated": 0,
    "conditions": [],
    "history": [],
}
"""What the operator writes and never reads: left out, or each count would be a state.

``Mind.is_checked`` has it asserted that a plan is the same with them as without.
"""


class View(NamedTuple):
    """What a worker reports."""

    state: State
    refusal: Mark | None
    failure: Mark | None
    running: tuple[str, str, str] | None
    """The step that is under way, its operation and its version."""
    is_overdue: bool
    exits: tuple[str, str, int] | None = None


def view_of(worker: Local) -> View:
    """Return what a worker would say now."""
    running = worker.running
    if running is None or running.command.what == RESCUE:
        return View(
            worker.state, worker.refusal, worker.failure, None, worker.is_overdue, worker.exits
        )
    command = running.command
    now = (running.verbs[0], command.operation, command.version)
    return View(worker.state, worker.refusal, worker.failure, now, worker.is_overdue, worker.exits)


class Known(NamedTuple):
    """What the operator knows of one worker, and what it is asking of it."""

    report: View | None = None
    is_reachable: bool = False
    waits: bool = False
    """A command failed, and the time to send it again has not come."""
    calling: Command | None = None
    """The command whose answer it waits for."""
    about: tuple[str, str] | None = None
    """Version and operation of the last command."""
    is_delivered: bool = False
    is_in_vain: bool = False
    """No answer will come, and the state of the worker is unknown."""
    epoch: int = 0
    """The epoch under which the operator drives; 0 before it has taken the fleet over."""
    is_strange: bool = False
    """Whether it has not answered since then: an earlier driver's command may come first."""
    answer: tuple[bool, View] | None = None
    """The answer on its way: whether it is good, and the report in it."""

    def led(self, epoch: int) -> "Known":
        """Return what is known once the operator drives under this epoch."""
        return self._replace(epoch=epoch, is_strange=self.report is not None)

    @property
    def verb(self) -> Verb | None:
        """What it is asking, in the words of the planner."""
        if self.calling is None:
            return Verb.RELOAD if self.is_strange and self.is_reachable else None
        return Verb.RELOAD if self.calling.what == UPDATE else Verb(self.calling.what)

    def __str__(self) -> str:
        if self.report is None:
            words = ["nothing"]
        else:
            words = [str(self.report.state.stage), f"proved={self.report.state.proved}"]
            words.append(f"prepared={self.report.state.prepared}")
            if self.report.failure:
                words.append(f"failure {self.report.failure.code}")
        words += [] if self.is_reachable else ["unreachable"]
        words += [f"calling {self.calling}"] if self.calling else []
        return " ".join(words + (["waits"] if self.waits else []))


@dataclass(frozen=True)
class Declared:
    """What is in the API server: the spec's target, and the recorded status."""

    target: str | None
    generation: int
    status: FleetStatus
    epoch: int = 1
    is_led: bool = True
    """Whether the operator of today has taken the fleet over: with its first write."""

    @property
    def key(self) -> tuple[object, ...]:
        """Distinguish two of them."""
        return self.target, self.generation, self.status.model_dump_json(), self.epoch, self.is_led

    def asking(self, version: str) -> "Declared":
        """Return what is there after a request for a version where the last one was."""
        trainers = self.status.trainer_target
        if trainers is None:
            return replace(self, target=version, generation=self.generation + 1)
        asked = trainers.model_copy(update={"version": version})
        status = self.status.model_copy(update={"trainer_target": asked})
        return replace(self, target=version, status=status)


def aged(declared: Declared) -> Declared:
    """Let so much time pass that nothing on record is recent."""
    rollout = declared.status.rollout
    if rollout is None or rollout.started_at == LONG_AGO:
        return declared
    if rollout.not_before is None and rollout.phase not in ENDED:
        # Nothing that the planner does now depends on it.
        return declared
    older = {"started_at": LONG_AGO, "not_before": None}
    past = rollout.model_copy(update=older)
    return replace(declared, status=declared.status.model_copy(update={"rollout": past}))


class PodView(NamedTuple):
    """A pod as the operator's watch shows it."""

    uid: int
    gate: bool | None
    label: str | None
    is_ready: bool


class Decision(NamedTuple):
    """One pass: the status to write, and what to do."""

    status: FleetStatus
    actions: tuple[Action, ...]


def name_of(ordinal: int) -> str:
    """Name a worker."""
    return worker_name(NAME, ordinal)


def pod_view_of(worker: Local) -> PodView | None:
    """Return what the watch shows of a worker's pod."""
    if not worker.exists:
        return None
    return PodView(worker.pod, worker.gate, worker.label, worker.is_ready)


@cache
def pod_of(view: PodView, ordinal: int) -> Pod:
    """Make the pod that the watch shows."""
    return Pod(
        name=name_of(ordinal),
        uid=str(view.uid),
        ordinal=ordinal,
        owner_uid="f-1",
        template_hash=TEMPLATE,
        address="10.0.0.1",
        phase="Running",
        ready=view.is_ready,
        weights_ready=view.gate,
        version_label=view.label,
        terminating=False,
        ends_by=None,
        engine_restarts=0,
        trouble=None,
    )


def _problem(mark: Mark | None) -> Problem | None:
    if mark is None:
        return None
    return Problem.of(mark.code, "told", version=mark.version, operation=mark.operation)


def _exits(told: tuple[str, str, int] | None) -> Exits | None:
    return told and Exits(version=told[0], operation=told[1], count=told[2])


@cache
def report_of(view: View) -> WorkerReport:
    """Make the report that says so."""
    state, running = view.state, view.running
    is_up = state.stage is not Stage.DOWN
    return WorkerReport(
        session="s",
        boot=state.boot if is_up else None,
        stage=state.stage,
        proved=state.proved if is_up else None,
        proof=state.proof if is_up else None,
        installed=state.installed if is_up else None,
        prepared=state.prepared,
        running=None
        if running is None
        else Running(verb=Verb(running[0]), operation=running[1], version=running[2]),
        refusal=_problem(view.refusal),
        failure=_problem(view.failure),
        paused_s=LONG if view.is_overdue else None,
        exits=_exits(view.exits),
    )


class Mind:
    """Makes worlds out of knowledge, and has the real planner decide."""

    def __init__(self, spec: dict[str, Any], replicas: int, *, is_trainers: bool = False) -> None:
        self.fleet = fleets.fleet({**spec, "replicas": replicas})
        self.replicas = replicas
        self.is_trainers = is_trainers
        """Whether the spec names no version, and a trainer asks at the fleet API."""
        self.is_checked = False
        """Whether to see that a plan is the same without what is only written."""

    def world(
        self, declared: Declared, known: tuple[Known, ...], views: tuple[PodView | None, ...]
    ) -> World:
        """Return what the operator observes."""
        return World(
            fleet=self._fleet(declared),
            workers=tuple(
                Worker(
                    name_of(i),
                    i,
                    None if view is None else pod_of(view, i),
                    report=one.report and report_of(one.report),
                    reachable=one.is_reachable,
                    calling=one.verb,
                    calling_for=one.about,
                    retry_at=MOMENT + 1 if one.waits else 0.0,
                )
                for i, (one, view) in enumerate(zip(known, views, strict=True))
            ),
            template_hash=TEMPLATE,
            moment=MOMENT,
        )

    def _fleet(self, declared: Declared) -> Fleet:
        # Not whether status holds a trainer's target: then its loss would not be seen.
        named = None if self.is_trainers else declared.target
        spec = self.fleet.spec.model_copy(update={"weight_version": named})
        return replace(
            self.fleet, spec=spec, status=declared.status, generation=declared.generation
        )

    def decided(self, world: World) -> Decision:
        """Make one pass over the world."""
        step = plan(world)
        full = status_of(world, step.rollout)
        kept = full.model_copy(update={**WRITTEN_ONLY, "rollout": _kept(full.rollout)})
        if self.is_checked:
            written = replace(world, fleet=replace(world.fleet, status=full))
            masked = replace(world, fleet=replace(world.fleet, status=kept))
            if plan(written) != plan(masked):
                raise ViolationError("the plan reads a field of status that the model leaves out")
        return Decision(kept, step.actions)


def _kept(rollout: RolloutStatus | None) -> RolloutStatus | None:
    """Leave out why an active rollout does not continue: each pass writes it again."""
    if rollout is None or rollout.phase in ENDED or rollout.reason == Reason.ROLLBACK:
        return rollout
    return rollout.model_copy(update={"message": ""})


def command_of(action: Sent, epoch: int, pod: int) -> Command:
    """Make the command that carries an action to its worker."""
    plain = Command(
        what=str(_WHAT[type(action)]),
        version=action.version,
        operation=action.operation,
        epoch=epoch,
        pod=pod,
    )
    if isinstance(action, Update):
        return plain._replace(expected=action.expected, through=action.through)
    return plain


def sent(known: Known, action: Sent, epoch: int, pod: int) -> Known:
    """Return what is known once the action is sent; a change overtakes a prepare."""
    about = (action.version, action.operation)
    if known.verb in {Verb.RELOAD, Verb.RESUME}:
        return known
    if known.calling is not None and isinstance(action, Prepare) and known.about == about:
        return known
    waits = known.waits and known.about == about
    command = command_of(action, epoch, pod)
    return known._replace(
        calling=command, about=about, is_delivered=False, is_in_vain=False, answer=None, waits=waits
    )
