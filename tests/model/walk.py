"""Walks by chance: users and trainers change what they ask for while commands are under way.

The search sees every order of events, of few workers whose rules stay. A walk sees one order, of
any rules that change: strategy, holds, partition, scale, template, a trainer's pause. Workers,
sidecars and faults are the search's.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.problems import Problem
from rlfleet_contract.worker.report import Newest, Stage, WorkerReport
from rlfleet_operator.core.model.actions import (
    Action,
    CreatePod,
    DeletePod,
    Flush,
    MarkPod,
    Pause,
    Prepare,
    Resume,
    Update,
)
from rlfleet_operator.core.model.version_label import label_of
from rlfleet_operator.core.model.worker_pod import Pod
from rlfleet_operator.core.model.world import Worker, World, time_of
from rlfleet_operator.core.plan import Plan, plan
from rlfleet_operator.core.rollout.cohorts import is_eligible, kept
from rlfleet_operator.core.rollout.retention import needs
from rlfleet_operator.core.status.fleet import status_of
from rlfleet_operator.crd.fleet_spec import Follow, WeightsSpec
from rlfleet_operator.crd.fleet_status import FleetStatus, TrainerPause, TrainerTarget
from rlfleet_operator.crd.retention import RetentionSpec
from rlfleet_operator.crd.rollout_spec import RolloutSpec
from tests import fleets
from tests.model import sidecar
from tests.model.explore import demand_forward
from tests.model.local import RESCUE, Command, Fate, Local, ViolationError
from tests.model.mind import Known, PodView, name_of, pod_of, report_of, sent, view_of
from tests.model.pair import Change, changes, created, gone

FATES = {
    "base": Fate.GOOD,
    "a-1": Fate.GOOD,
    "a-2": Fate.GOOD,
    "a-3": Fate.GOOD,
    "x-4": Fate.BREAKS,
    "y-5": Fate.CRUSHES,
    "z-6": Fate.REFUSED,
    "w-7": Fate.EXITS,
}
GOOD = tuple(version for version, fate in FATES.items() if fate is Fate.GOOD)
LONG_S = 100_000.0
"""Longer than any hold, pause, back-off and deadline."""
_ROUNDS, _RESTS = 600, 30
_FAULTY, _CRASHES, _LANDS = 0.12, 0.02, 0.6


@dataclass
class Place:
    """One ordinal: its worker, what is known of it, and what the operator remembers besides."""

    worker: Local = field(default_factory=lambda: Local(exists=False, pod=0))
    known: Known = field(default_factory=Known)
    is_terminating: bool = False
    template: str = ""
    operation: str | None = None
    """Of the last change that its sidecar began."""
    flushed: str | None = None
    rejections: dict[str, Problem] = field(default_factory=dict)
    silence: str | None = None

    def forget(self) -> None:
        """Forget what the operator remembers of a pod."""
        self.rejections, self.silence = {}, None

    def begin(self, worker: Local, known: Known, template: str) -> None:
        """Have a new pod."""
        self.__dict__.update(Place(worker, known, template=template).__dict__)

    def end(self) -> None:
        """Lose the pod."""
        self.begin(gone(self.worker), Known(epoch=self.known.epoch), "")

    def pod(self, ordinal: int) -> Pod | None:
        """Return the pod as the watch shows it."""
        worker = self.worker
        if not worker.exists:
            return None
        pod = pod_of(PodView(worker.pod, worker.gate, worker.label, worker.is_ready), ordinal)
        return replace(pod, terminating=self.is_terminating, template_hash=self.template)

    def report(self, newest: str | None) -> WorkerReport | None:
        """Return what is known of its report, and remember a rejection as the pool does."""
        if self.known.report is None:
            return None
        report = report_of(self.known.report)
        refusal = report.refusal
        if refusal is None or refusal.version is None:
            self.rejections = {}
        else:
            same = {v: p for v, p in self.rejections.items() if p.operation == refusal.operation}
            self.rejections = same | {refusal.version: refusal}
        more: dict[str, Any] = {"operation": self.operation}
        more["flushed"] = None if report.stage is Stage.OPEN else self.flushed
        if newest is not None:
            more["newest"] = Newest(version=newest, found_at=1.0)
        return report.model_copy(update=more)


class Walk:
    """A fleet, and what happens to it by chance."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        spec = {"replicas": chance.randint(1, 4), "weightVersion": "a-1"}
        self.fleet = fleets.fleet(spec)
        self.moment, self.template = 1e9, "a"
        self.places: dict[int, Place] = {}
        self.newest: str | None = None
        self.epoch, self.is_led = 0, False
        self.revision = 0
        self.writing: tuple[FleetStatus, int] | None = None
        """A status on its way, and the revision of the object that it was made of."""
        self.needed: frozenset[str] | None = None
        """What the fleet needed in the pass before; None if nothing may be deleted."""
        self.asked_since = 0.0

    # --- what users and trainers do ---------------------------------------------------------------

    def ask(self, **spec: Any) -> None:
        made = self.fleet.spec.model_copy(update=spec)
        self._written(spec=made, generation=self.fleet.generation + 1)

    def write(self, **status: Any) -> None:
        self._written(status=self.fleet.status.model_copy(update=status))

    def _written(self, **fields: Any) -> None:
        target = self.fleet.target
        self.fleet, self.revision = replace(self.fleet, **fields), self.revision + 1
        if self.fleet.target != target:
            self.asked_since = self.moment

    def version(self) -> None:
        self.ask(weight_version=self.chance.choice([None, *FATES, *GOOD]))

    def rules(self) -> None:
        pick = self.chance.choice
        strategy = pick(["Rolling", "Barrier", "Canary"])
        found: dict[str, Any] = {
            "strategy": strategy,
            "maxUnavailable": pick([1, 2, "25%", "67%", "100%"]),
            "onFailure": pick(["Quarantine", "Rollback", "Hold"]),
            "partition": 0 if strategy == "Barrier" else pick([0, 0, 1, 2, "50%"]),
            "paused": pick([False] * 4 + [True]),
            "dryRun": pick([False] * 6 + [True]),
            "restartId": pick(["", "", "again"]),
        }
        if strategy == "Canary":
            found["canary"] = {"count": pick([1, 2]), "holdSeconds": pick([0, 30, 600])}
            found["canary"]["promote"] = pick(["Auto", "Manual"])
        self.ask(rollout=RolloutSpec.model_validate(found))

    def scale(self) -> None:
        self.ask(replicas=self.chance.choice([0, 1, 2, 3, 4]))

    def weights(self) -> WeightsSpec:
        assert self.fleet.spec.weights is not None
        return self.fleet.spec.weights

    def follow(self) -> None:
        follow = self.chance.choice([Follow.LATEST, Follow.NEVER])
        self.ask(weights=self.weights().model_copy(update={"follow": follow}), weight_version=None)

    def retain(self) -> None:
        retention = self.chance.choice([None, RetentionSpec(keep=1)])
        self.ask(weights=self.weights().model_copy(update={"retention": retention}))

    def publish(self) -> None:
        self.newest = self.chance.choice([version for version in FATES if version != "base"])

    def change_template(self) -> None:
        self.template = self.chance.choice("ab")

    def train(self) -> None:
        if self.fleet.is_free:
            version = self.chance.choice(list(FATES))
            asked = TrainerTarget(version=version, asked_at=time_of(self.moment))
            self.write(trainer_target=asked)

    def pause(self) -> None:
        if not self.fleet.is_free or self.fleet.pause_at(self.moment) is not None:
            return
        until = time_of(self.moment + self.chance.choice([30, 300]))
        made = TrainerPause(
            operation=f"fleet-pause-{self.revision}",
            asked_at=time_of(self.moment),
            until=until,
            ttl_seconds=300,
            flushes=self.chance.choice([0, 1]),
        )
        self.write(trainer_pause=made)

    def resume(self) -> None:
        pause = self.fleet.status.trainer_pause
        if pause is not None:
            self.write(trainer_pause=pause.model_copy(update={"ending": True}))

    def outlast_pause(self) -> None:
        pause = self.fleet.status.trainer_pause
        if pause is not None:
            self.moment = max(self.moment, pause.until_epoch + 1)

    def disturb(self) -> None:
        happenings: tuple[Callable[[], None], ...] = (
            *(self.version, self.version, self.rules, self.rules, self.scale, self.follow),
            *(self.publish, self.retain, self.change_template, self.train, self.pause),
            *(self.resume, self.outlast_pause),
        )
        self.chance.choice(happenings)()

    # --- what the operator does -------------------------------------------------------------------

    def world(self) -> World:
        alive = {n for n, place in self.places.items() if place.worker.exists}
        ordinals = sorted(alive | set(range(self.fleet.spec.replicas)))
        return World(
            fleet=self.fleet,
            workers=tuple(self._worker(ordinal) for ordinal in ordinals),
            template_hash=self.template,
            moment=self.moment,
            asked_since=self.asked_since,
        )

    def _worker(self, ordinal: int) -> Worker:
        place = self.places.setdefault(ordinal, Place())
        pod, known = place.pod(ordinal), place.known
        is_paused = self.fleet.pause_at(self.moment) is not None
        if pod is None:
            return Worker(name_of(ordinal), ordinal, fleet_paused=is_paused)
        return Worker(
            name_of(ordinal),
            ordinal,
            pod,
            report=place.report(self.newest),
            reachable=known.is_reachable,
            calling=known.verb,
            calling_for=known.about,
            retry_at=self.moment + 1 if known.waits else 0.0,
            fleet_paused=is_paused,
            silence=None if known.is_reachable else place.silence,
            rejections=tuple(place.rejections.values()),
        )

    def make_pass(self, *, is_calm: bool = False) -> bool:
        """Make one pass; return whether anything is left to do. In calm nothing fails."""
        world, was_writing = self.world(), self.writing is not None
        step = plan(world)
        status = status_of(world, step.rollout)
        self._demand_allowed(world, step)
        fleets.readable(status)
        is_news = status != self.fleet.status
        if not self.is_led:
            self._take_over(status)
        elif is_news and self.writing is None:
            self.writing = status, self.revision
            if is_calm or self.chance.random() < _LANDS:
                self.land()
        actions = list(step.actions)
        is_crash = not is_calm and self.chance.random() < _CRASHES
        if is_crash:
            actions = self.chance.sample(actions, self.chance.randint(0, len(actions)))
        for action in actions:
            self._carry(action)
        if not was_writing:
            found = needs(world, step.rollout)
            self.needed = None if found is None else frozenset(found.versions)
        if is_crash:
            self._crash()
        return is_news or bool(actions)

    def _take_over(self, status: FleetStatus) -> None:
        self.epoch, self.is_led = self.epoch + 1, True
        self._record(status)
        for place in self.places.values():
            place.known = place.known.led(self.epoch)

    def _record(self, status: FleetStatus) -> None:
        old, new = self.fleet.status, status
        demand_forward(old, new.model_copy(update={"trainer_target": old.trainer_target}))
        self._written(status=status)

    def land(self) -> None:
        """Let the status on its way arrive, or meet a conflict."""
        if self.writing is not None:
            (status, revision), self.writing = self.writing, None
            if revision == self.revision:
                self._record(status)

    def _crash(self) -> None:
        if self.chance.random() < 0.5:
            self.land()
        self.writing, self.is_led = None, False
        for place in self.places.values():
            calling, mail = place.known.calling, place.worker.mail
            if calling is not None and not place.known.is_delivered:
                both: tuple[Command, ...] = tuple(sorted((*mail, calling), key=str))
                place.worker = place.worker._replace(mail=both)
            place.known = Known()
            place.forget()

    def _demand_allowed(self, world: World, step: Plan) -> None:
        """See that no command crosses a hold, a partition, a trainer's pause or a deletion."""
        by_name = {worker.name: worker for worker in world.workers}
        for action in step.actions:
            if world.pause is not None and isinstance(action, Update | Resume):
                is_allowed = isinstance(action, Update) and action.through is not Verb.RESUME
                _demand(is_allowed, f"in a trainer's pause: {action}")
            if isinstance(action, Prepare | Update) and self.needed is not None:
                known = {*self.needed, "base", world.fleet.target}
                _demand(action.version in known, f"may be deleted already: {action}")
            if isinstance(action, Update):
                worker = by_name[action.worker]
                if worker.is_open and worker.proved != action.version:
                    # A Barrier that has begun must complete, also in a hold.
                    is_held = world.fleet.spec.rollout.paused and action.through is Verb.RESUME
                    is_in = worker.ordinal >= kept(world) and is_eligible(worker, world)
                    _demand(is_in and not is_held, f"held, or not its turn: {action}")

    def _carry(self, action: Action) -> None:
        place = self.places.setdefault(_ordinal(action), Place())
        worker = place.worker
        match action:
            case CreatePod():
                if not worker.exists:
                    place.begin(created(worker), Known(epoch=self.epoch), self.template)
            case DeletePod(uid=uid):
                place.is_terminating |= worker.exists and uid == str(worker.pod)
            case MarkPod(uid=uid):
                if worker.exists and uid == str(worker.pod):
                    label = label_of(action.version)
                    place.worker = worker._replace(gate=action.ready, label=label)
            case Prepare() | Update() | Resume() | Pause() | Flush():
                if worker.exists and not place.is_terminating:
                    place.known = sent(place.known, action, self.epoch, worker.pod)

    # --- what happens between the operator and a worker -------------------------------------------

    @property
    def alive(self) -> list[Place]:
        return [place for place in self.places.values() if place.worker.exists]

    def happen(self, place: Place, *, is_calm: bool = False) -> bool:
        """Let one thing happen to a worker; return whether anything did. In calm nothing fails."""
        if place.is_terminating and (is_calm or self.chance.random() < _LANDS):
            place.end()
            return True
        if self._flush(place):
            return True
        found = list(changes(place.worker, place.known, FATES))
        if is_calm or self.chance.random() > _FAULTY:
            found = [change for change in found if change.fault is None]
        if not found:
            return False
        self._take(place, self.chance.choice(found))
        return True

    def _take(self, place: Place, change: Change) -> None:
        before, worker = place.worker.running, change.worker
        place.worker, place.known = worker, change.known
        running = worker.running
        is_new = running is not None and running != before
        if running is not None and is_new and running.command.what not in {RESCUE, Verb.PREPARE}:
            place.operation = running.command.operation
        if not worker.exists:
            place.end()
        if not place.known.is_reachable and place.known.report and self.chance.random() < _FAULTY:
            place.silence = "sidecar does not answer"

    def _flush(self, place: Place) -> bool:
        """Let a flush take no time: the model knows no caches."""
        known = place.known
        if known.calling is None or known.calling.what != Verb.FLUSH:
            return False
        place.worker = place.worker._replace(epoch=max(place.worker.epoch, known.epoch))
        place.flushed = known.calling.operation
        report = view_of(place.worker)
        place.known = known._replace(calling=None, report=report, is_reachable=True)
        return True

    # --- how it ends ------------------------------------------------------------------------------

    def come_to_rest(self) -> bool:
        """Let happen what happens without a fault; return whether an end was reached.

        There is none while a worker tries a version that it rejects again and again.
        """
        for _ in range(_RESTS):
            if not self._calm_down():
                return False
            self.moment += LONG_S
            if not self._outlast() and not self.make_pass(is_calm=True):
                self.land()
                return True
            self.land()
        return False

    def _calm_down(self) -> bool:
        for _ in range(_ROUNDS):
            is_left = False
            for place in self.alive:
                while place.worker.exists and self.happen(place, is_calm=True):
                    is_left = True
            self.land()
            if not self.make_pass(is_calm=True) and not is_left:
                return True
            self.moment += self.chance.choice([1, 5, 60])
        return False

    def _outlast(self) -> bool:
        """Let closed gates be overdue, and changes without a heartbeat expire."""
        is_led = self.fleet.target is not None or self.fleet.pause_at(self.moment) is not None
        is_changed = False
        for place in self.alive:
            before = place.worker
            is_kept = is_led and not sidecar.is_given_up(before)
            after = before if is_kept else sidecar.expired(before)
            place.worker = sidecar.waited(before) if after is before else after
            is_changed |= place.worker != before
        return is_changed


class CrowdedWalk(Walk):
    """A fleet of up to eight workers, whose users and trainers ask for several things at once."""

    def __init__(self, chance: Random) -> None:
        super().__init__(chance)
        spec = {
            "replicas": chance.randint(4, 8),
            "weightVersion": chance.choice(["a-1", None, "w-7"]),
        }
        self.fleet = fleets.fleet(spec)

    def scale(self) -> None:
        self.ask(replicas=self.chance.choice([0, 1, 2, 3, 5, 7, 8]))

    def disturb(self) -> None:
        for _ in range(self.chance.choice([1, 1, 2, 3])):
            super().disturb()


def _demand(is_true: bool, what: str) -> None:  # noqa: FBT001 - an assertion
    if not is_true:
        raise ViolationError(what)


def _ordinal(action: Action) -> int:
    if isinstance(action, CreatePod):
        return action.ordinal
    name = action.name if isinstance(action, DeletePod | MarkPod) else action.worker
    return int(name.rpartition("-")[2])
