"""Whatever users, trainers, nodes and clocks do together: promises hold, and status names waits."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.report import Newest, Stage
from rlfleet_operator.core.model.actions import Action, Flush, MarkPod, Pause, Resume, Update
from rlfleet_operator.core.model.world import Worker, World, time_of
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.rollout import version_order
from rlfleet_operator.core.rollout.cohorts import is_eligible, kept
from rlfleet_operator.core.simulation.model_fleet import carried_out, recorded, settled
from rlfleet_operator.core.simulation.model_worker import Effect
from rlfleet_operator.crd.fleet_spec import Follow
from rlfleet_operator.crd.fleet_status import FleetStatus, TrainerPause, TrainerTarget
from rlfleet_operator.crd.rollout_spec import RolloutSpec, StalenessSpec
from tests import fleets

GOOD = ("base", "step-1", "step-2", "step-3")
FATES = {"bad-4": Effect.BREAKS, "gone-5": Effect.REFUSED, "exit-6": Effect.EXITS}
VERSIONS = (*GOOD, *FATES)
PHASES = ("Completed", "Failed", "Held", "Superseded", "RolledBack", "Paused", "Preparing", "?")
HELD = frozenset({"Paused", "CanaryHold", "Partitioned"})
LONG_S = 100_000.0
"""Longer than any hold, pause, back-off and deadline."""


class Disturbed:
    """A fleet, and what happens to it by chance."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        spec = {"replicas": chance.randint(1, 5), "weightVersion": "step-1"}
        seen = fleets.at_rest(fleets.world(spec))
        self.world = replace(seen, moment=seen.moment + 60)
        self.fates: dict[tuple[str, str], Effect] = {}
        """Of one version on one worker."""
        self.silent: set[str] = set()
        self.is_edited = False
        """Whether status was written by hand: it may say that a failed rollout completed."""

    def ask(self, **spec: Any) -> None:
        self.world = fleets.asking(self.world, **spec)

    def write(self, **status: Any) -> None:
        made = self.world.fleet.status.model_copy(update=status)
        self.world = replace(self.world, fleet=replace(self.world.fleet, status=made))

    def write_rollout(self, **fields: Any) -> None:
        known = self.world.fleet.status.rollout
        if known is not None:
            self.write(rollout=known.model_copy(update=fields))

    def change(self, change: Callable[[Worker], Worker]) -> None:
        """Change one worker."""
        if self.world.workers:
            name = self.chance.choice(self.world.workers).name
            some = (change(w) if w.name == name else w for w in self.world.workers)
            self.world = replace(self.world, workers=tuple(some))

    # --- what happens -----------------------------------------------------------------------------

    def version(self) -> None:
        self.ask(weight_version=self.chance.choice([None, *VERSIONS]))

    def rules(self) -> None:
        self.ask(rollout=RolloutSpec.model_validate(self._rules()))

    def _rules(self) -> dict[str, Any]:
        pick, percents = self.chance.choice, ("25%", "34%", "67%", "100%")
        strategy = pick(["Rolling", "Barrier", "Canary"])
        found = {
            "strategy": strategy,
            "maxUnavailable": pick([1, 2, *percents]),
            "onFailure": pick(["Quarantine", "Rollback", "Hold"]),
            "maxFailed": pick([None, 0, 1, "50%"]),
            "partition": pick([0, 0, 0, 1, 2, 9, *percents]),
            "paused": pick([False, False, True]),
            "dryRun": pick([False] * 5 + [True]),
            "restartId": pick(["", "", "again"]),
        }
        if strategy == "Canary":
            steps = {"count": pick([1, 2, "50%"]), "holdSeconds": pick([0, 30, 600])}
            found["canary"] = steps | {"promote": pick(["Auto", "Manual"])}
        return {name: value for name, value in found.items() if value is not None}

    def staleness(self) -> None:
        least = self.chance.choice([None, *GOOD[1:]])
        bounds = {"maxSkew": self.chance.choice([0, 1]), "minVersion": least}
        found = {name: value for name, value in bounds.items() if value is not None}
        what = found | {"onViolation": self.chance.choice(["Warn", "Unready"])}
        self.ask(staleness=self.chance.choice([None, StalenessSpec.model_validate(what)]))

    def scale(self) -> None:
        self.ask(replicas=self.chance.choice([0, 0, 1, 2, 3, 5]))

    def follow(self) -> None:
        weights = self.world.fleet.spec.weights
        assert weights is not None
        self.ask(weights=weights.model_copy(update={"follow": Follow.LATEST}), weight_version=None)

    def publish(self) -> None:
        newest = Newest(version=self.chance.choice(VERSIONS[1:]), found_at=1.0)
        self.world = replace(
            self.world,
            workers=tuple(_reporting(w, newest=newest) for w in self.world.workers),
        )

    def train(self) -> None:
        if self.world.fleet.is_free:
            at = time_of(self.world.moment)
            version = self.chance.choice(VERSIONS)
            self.write(trainer_target=TrainerTarget(version=version, asked_at=at))

    def pause(self) -> None:
        if self.world.fleet.is_free:
            now = self.world.moment
            times = {
                "asked_at": time_of(now),
                "until": time_of(now + self.chance.choice([30, 300])),
            }
            name, flushes = f"fleet-pause-{now}", self.chance.choice([0, 1])
            made = TrainerPause(operation=name, ttl_seconds=300, flushes=flushes, **times)
            self.write(trainer_pause=made)

    def resume(self) -> None:
        pause = self.world.fleet.status.trainer_pause
        if pause is not None:
            self.write(trainer_pause=pause.model_copy(update={"ending": True}))

    def lose_pod(self) -> None:
        self.change(lambda worker: replace(worker, pod=None, report=None))

    def restart_engine(self) -> None:
        self.change(lambda worker: replace(worker, report=None))

    def fall_silent(self) -> None:
        self.silent = {w.name for w in self.world.workers if self.chance.random() < 0.5}

    def spoil(self) -> None:
        """Have a good version fail on one worker."""
        names = [w.name for w in self.world.workers] or [""]
        about = self.chance.choice(names), self.chance.choice(GOOD)
        self.fates[about] = self.chance.choice([Effect.BREAKS, Effect.REFUSED])

    def new_template(self) -> None:
        self.world = replace(self.world, template_hash=self.chance.choice("ab"))

    def step_clock(self) -> None:
        by = self.chance.choice([-1e6, -3600, -2, 2, 3600, 1e6])
        self.world = replace(self.world, moment=max(1e8, self.world.moment + by))

    def edit_status(self) -> None:
        self.is_edited = True
        pick, far = self.chance.choice, "2090-01-01T00:00:00Z"
        edits: list[Callable[[], None]] = [
            lambda: self.write(**dict(FleetStatus())),
            lambda: self.write(rollout=None),
            lambda: self.write(target=pick(VERSIONS), serving=pick(VERSIONS)),
            lambda: self.write(replacing=pick([None, [], [0, 9]]), workers=[], conditions=[]),
            lambda: self.write_rollout(phase=pick(PHASES)),
            lambda: self.write_rollout(kept=pick(VERSIONS), from_version=pick(VERSIONS)),
            lambda: self.write_rollout(id=pick([0, 5, 2**62])),
            lambda: self.write_rollout(started_at=far, held_since=far, not_before=far),
        ]
        pick(edits)()

    def disturb(self) -> None:
        happenings = (
            *(self.version, self.rules, self.staleness, self.scale, self.follow, self.publish),
            *(self.train, self.pause, self.resume, self.lose_pod, self.restart_engine),
            *(self.fall_silent, self.spoil, self.new_template, self.step_clock, self.edit_status),
        )
        self.chance.choice(happenings)()

    # --- what the operator does -------------------------------------------------------------------

    def settle(self, seen: World) -> World:
        """Return what the operator observes: some workers do not answer."""
        seen = settled(seen)
        some = (replace(w, reachable=w.name not in self.silent) for w in seen.workers)
        return replace(seen, workers=tuple(some))

    def carry(self, seen: World, action: Action) -> World:
        """Return the world after an action; a silent worker gets no command."""
        name, version = getattr(action, "worker", ""), getattr(action, "version", None)
        if name in self.silent:
            return seen
        fate = self.fates.get((name, version or "")) or FATES.get(version or "", Effect.GOOD)
        after = carried_out(seen, action, {version or "": fate})
        if isinstance(action, Update | Resume | Pause | Flush):
            of = action.operation
            some = (_reporting(w, operation=of) if w.name == name else w for w in after.workers)
            after = replace(after, workers=tuple(some))
        return after

    def make_pass(self, *, is_cut: bool) -> bool:
        """Make one pass, of which any part may be carried out; return whether it changed any."""
        seen = self.settle(self.world)
        promises_hold(seen)
        step = plan(seen)
        commands_are_allowed(seen, step.actions)
        after = recorded(seen, step)
        fleets.readable(after.fleet.status)
        actions = list(step.actions)
        if is_cut and self.chance.random() < 0.5:
            self.chance.shuffle(actions)
            actions = actions[: self.chance.randint(0, len(actions))]
        for action in actions:
            after = self.settle(self.carry(after, action))
            promises_hold(after)
        self.world = replace(after, moment=after.moment + 60)
        return self.settle(after) != seen

    def come_to_rest(self) -> bool:
        """Return whether an end was reached: a worker may try versions that it rejects in turn."""
        self.silent = set()
        return any(not self.make_pass(is_cut=False) for _ in range(200))


def _reporting(worker: Worker, **fields: Any) -> Worker:
    report = worker.report.model_copy(update=fields) if worker.report else None
    return replace(worker, report=report)


def promises_hold(seen: World) -> None:
    for worker in seen.workers:
        if worker.is_open:
            assert worker.proved not in FATES
        if worker.pod and worker.pod.ready and worker.reachable:
            assert worker.is_open or worker.is_changing


def commands_are_allowed(seen: World, actions: Sequence[Action]) -> None:
    """Assert that no plan crosses a hold, the partition or a trainer's pause."""
    by_name, stale = {w.name: w for w in seen.workers}, version_order.stale(seen)
    commanded = [a.worker for a in actions if not isinstance(a, MarkPod) and hasattr(a, "worker")]
    bounds = seen.fleet.spec.staleness
    assert len(commanded) == len(set(commanded))
    for action in actions:
        if seen.pause is not None:
            assert not isinstance(action, Resume)
            assert not isinstance(action, Update) or action.through is not Verb.RESUME
        if isinstance(action, Update):
            worker = by_name[action.worker]
            if worker.is_open and worker.proved != action.version:
                assert not seen.fleet.spec.rollout.paused
                assert worker.ordinal >= kept(seen)
                assert is_eligible(worker, seen)
        if isinstance(action, MarkPod) and action.ready:
            assert bounds is None or bounds.on_violation != "Unready" or action.name not in stale


def waits_are_named(seen: World) -> None:
    """Assert that a fleet at rest that is not as asked is stalled or held."""
    told = {one.type: one for one in fleets.readable(seen.fleet.status).conditions}
    for worker in seen.workers:
        assert worker.stage in {Stage.OPEN, Stage.DOUBT, Stage.CLOSED}
    if all(told[kind].status == "True" for kind in ("Ready", "WeightsSynced")):
        return
    rules, rollout = seen.fleet.spec.rollout, seen.fleet.status.rollout
    is_held = rollout is not None and rollout.phase in HELD
    is_out = any(not w.takes_traffic for w in seen.desired)
    if {"Stalled", "Degraded"} & told.keys() or rules.paused or rules.dry_run:
        return
    if told["WeightsSynced"].reason == "MixedVersions":
        # No version is requested, and none of the workers' own is better than another.
        assert not seen.fleet.status.target
        return
    assert is_held
    assert not is_out, told


@settings(max_examples=150, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.randoms(use_true_random=False))
def test_a_disturbed_fleet_keeps_its_promises_and_names_its_holds(chance: Random) -> None:
    fleet = Disturbed(chance)
    for _ in range(chance.randint(1, 8)):
        fleet.disturb()
        for _ in range(chance.randint(0, 4)):
            fleet.make_pass(is_cut=True)

    if fleet.come_to_rest():
        fleet.world = replace(fleet.world, moment=fleet.world.moment + LONG_S)
        if fleet.come_to_rest() and not fleet.is_edited:
            waits_are_named(fleet.world)

    fleet.fates = {}
    rules, count = RolloutSpec.model_validate({"restartId": "last"}), chance.randint(1, 4)
    weights = fleet.world.fleet.spec.weights
    assert weights is not None
    fleet.ask(replicas=count, weight_version="step-2", rollout=rules, staleness=None)
    assert fleet.come_to_rest()
    assert [w.proved for w in fleet.world.workers] == ["step-2"] * count
    assert all(w.takes_traffic for w in fleet.world.workers)
    told = {c.type: c.status for c in fleet.world.fleet.status.conditions}
    assert told == {"Ready": "True", "WeightsSynced": "True"}
