"""Breadth-first search over fleets: every order of every event, within bounds.

A state is the API server's content, the budget of faults that is left, and each worker with
what the operator knows of it; every part is stored once and named by a number.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, TypeVar

from rlfleet_contract.worker.report import Stage
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
    WorkerCommand,
)
from rlfleet_operator.core.model.actions import WeightsCommand as Sent
from rlfleet_operator.core.model.version_label import label_of
from rlfleet_operator.core.rollout import budget
from rlfleet_operator.core.rollout.rollout import of_record
from rlfleet_operator.crd.fleet_status import FleetStatus, TrainerTarget
from rlfleet_operator.crd.rollout_status import RolloutStatus
from tests.model.local import Command, Fate, Local, ViolationError
from tests.model.mind import Decision, Declared, Known, Mind, PodView, aged, pod_view_of, sent
from tests.model.pair import Change, Fault, changes, created, demand_sound, gone

PartT = TypeVar("PartT", bound=Hashable)
_WALK = 2000
_UNLED = frozenset(set(Fault) - {Fault.FAILURE})
"""What may part a worker from the others: the operator waits for none that does not answer."""
State = tuple[int, ...]
"""Declared, budget, and for each worker the worker and what is known of it, as numbers."""


class Parts(Generic[PartT]):
    """Numbers for equal values."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self.values: list[PartT] = []

    def number(self, value: PartT, key: Hashable | None = None) -> int:
        """Return the number of a value."""
        key = value if key is None else key
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.values)
            self.values.append(value)
        return found


@dataclass(frozen=True)
class Config:
    """What is searched: a fleet, its versions, and how often what may go wrong."""

    name: str
    replicas: int
    rollout: Mapping[str, Any]
    fates: Mapping[str, Fate]
    serving: str
    """The version that the fleet serves when the search begins; empty: it is being created."""
    target: str
    """What is asked for at first."""
    has_cache: bool = True
    """Whether workers keep what they prepared when their sidecar dies."""
    is_trainers: bool = False
    """Whether it stands in status, where a trainer's request puts it, and not in the spec."""
    faults: Mapping[Fault, int] = field(default_factory=dict)
    at_once: int = 99
    """How many faults of all kinds there may be, patches left out."""
    allowed: int | None = None
    """How many workers may be out for all that is checked; None: as many as the spec says."""

    @property
    def is_one_version(self) -> bool:
        """Whether no two versions may be served: a Barrier in which everybody can be led."""
        is_led = not any(self.faults.get(fault, 0) for fault in _UNLED)
        return self.rollout.get("strategy") == "Barrier" and is_led

    @property
    def limit(self) -> int:
        """How many workers may be out at once."""
        if self.allowed is not None:
            return self.allowed
        if self.rollout.get("strategy") == "Barrier":
            return self.replicas
        return budget.resolve(self.rollout.get("maxUnavailable", "25%"), self.replicas)


class Budget(NamedTuple):
    """What may still go wrong."""

    left: tuple[int, ...]
    at_once: int

    def without(self, fault: Fault) -> "Budget | None":
        """Return what is left after a fault; None if it can no longer happen."""
        place = list(Fault).index(fault)
        is_counted = fault is not Fault.PATCH
        if self.left[place] == 0 or (is_counted and self.at_once == 0):
            return None
        left = (*self.left[:place], self.left[place] - 1, *self.left[place + 1 :])
        return Budget(left, self.at_once - is_counted)


class Edge(NamedTuple):
    """One event, the state that it leads to, and whether it needs no fault."""

    what: str
    state: State
    is_free: bool


class Fleet:
    """The transitions of one configuration."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.mind = Mind(
            {"rollout": dict(config.rollout), "weightVersion": config.target},
            config.replicas,
            is_trainers=config.is_trainers,
        )
        self._declared: Parts[Declared] = Parts()
        self._budgets: Parts[Budget] = Parts()
        self._workers: Parts[Local] = Parts()
        self._known: Parts[Known] = Parts()
        self._changes: dict[tuple[int, int], list[tuple[str, Fault | None, bool, int, int]]] = {}
        self._seen: Parts[tuple[PodView | None, Known]] = Parts()
        self._seen_of: dict[tuple[int, int], int] = {}
        self._decisions: dict[tuple[int, tuple[int, ...]], Decision] = {}
        self._done: dict[tuple[int, int, Action, int], tuple[int, int]] = {}
        self._spent: dict[tuple[int, Fault], int | None] = {}

    # --- states -----------------------------------------------------------------------------------

    def packed(
        self, declared: Declared, left: Budget, pairs: Iterable[tuple[Local, Known]]
    ) -> State:
        """Return the state as numbers."""
        numbers = [self._declared.number(declared, declared.key), self._budgets.number(left)]
        for worker, known in pairs:
            numbers += [self._workers.number(worker), self._known.number(known)]
        return tuple(numbers)

    def declared(self, state: State) -> Declared:
        """Return what the API server holds."""
        return self._declared.values[state[0]]

    def pairs(self, state: State) -> list[tuple[Local, Known]]:
        """Return each worker, and what is known of it."""
        return [
            (self._workers.values[w], self._known.values[k])
            for w, k in zip(state[2::2], state[3::2], strict=True)
        ]

    def start(self) -> State:
        """Return where the search begins: at rest on a version, the spec asking for another."""
        config = self.config
        none = Budget((0,) * len(Fault), 0)
        first = config.serving or config.target
        worker = Local(has_cache=config.has_cache), Known(epoch=1)
        trainers = TrainerTarget(version=first, asked_at="") if config.is_trainers else None
        nothing = Declared(first, 1, FleetStatus(trainer_target=trainers))
        state = self.packed(nothing, none, [worker] * config.replicas)
        if config.serving:
            state = self._rested(state)
            nothing = self.declared(state).asking(config.target)
        left = Budget(tuple(config.faults.get(f, 0) for f in Fault), config.at_once)
        return self.packed(nothing, left, self.pairs(state))

    def _rested(self, state: State) -> State:
        """Let happen what happens without a fault, until nothing does."""
        for _ in range(_WALK):
            edge = next((edge for edge in self.edges(state) if edge.is_free), None)
            if edge is None:
                return state
            state = edge.state
        raise ViolationError(f"no rest after {_WALK} events: {self.described(state)}")

    # --- transitions ------------------------------------------------------------------------------

    def edges(self, state: State) -> Iterator[Edge]:
        """Return all that can happen next."""
        yield from self._between(state)
        yield from self._passes(state)
        yield from self._patches(state)
        older = aged(self.declared(state))
        after = (self._recorded(older), *state[1:])
        yield from _edge(state, "time passes", after, is_free=True)

    def _spend(self, left: int, fault: Fault | None) -> int | None:
        if fault is None:
            return left
        key = (left, fault)
        if key not in self._spent:
            after = self._budgets.values[left].without(fault)
            self._spent[key] = None if after is None else self._budgets.number(after)
        return self._spent[key]

    def _between(self, state: State) -> Iterator[Edge]:
        for place in range(2, len(state), 2):
            for what, fault, is_free, worker, known in self._of_pair(*state[place : place + 2]):
                left = self._spend(state[1], fault)
                if left is None:
                    continue
                after = (state[0], left, *state[2:place], worker, known, *state[place + 2 :])
                yield Edge(f"{place // 2 - 1}: {what}", after, is_free and fault is None)

    def _of_pair(self, worker: int, known: int) -> list[tuple[str, Fault | None, bool, int, int]]:
        key = (worker, known)
        if key not in self._changes:
            found = changes(
                self._workers.values[worker], self._known.values[known], self.config.fates
            )
            self._changes[key] = [self._numbered(change) for change in found]
        return self._changes[key]

    def _numbered(self, change: Change) -> tuple[str, Fault | None, bool, int, int]:
        worker, known = self._workers.number(change.worker), self._known.number(change.known)
        return change.what, change.fault, change.is_free, worker, known

    def decision(self, state: State) -> Decision:
        """Return what the operator makes of what it sees; the real planner decides."""
        seen = tuple(self._seen_by_operator(*state[n : n + 2]) for n in range(2, len(state), 2))
        key = (state[0], seen)
        if key not in self._decisions:
            views, known = zip(*(self._seen.values[number] for number in seen), strict=True)
            world = self.mind.world(self.declared(state), known, views)
            self._decisions[key] = self.mind.decided(world)
        return self._decisions[key]

    def _seen_by_operator(self, worker: int, known: int) -> int:
        """Return what of a pair the planner may depend on."""
        pair = (worker, known)
        if pair not in self._seen_of:
            told = self._known.values[known]._replace(is_delivered=False, answer=None)
            view = pod_view_of(self._workers.values[worker])
            self._seen_of[pair] = self._seen.number((view, told))
        return self._seen_of[pair]

    def _passes(self, state: State) -> Iterator[Edge]:
        decision = self.decision(state)
        declared = self.declared(state)
        if not declared.is_led:
            yield from self._taken_over(state, decision)
            return
        actions, written = decision.actions, declared
        if decision.status != declared.status:
            demand_forward(declared.status, decision.status)
            written = replace(declared, status=decision.status)
        whole = self._carried_out(state[2:], actions, declared.epoch)
        record = self._recorded(written)
        yield from _edge(state, "the operator passes", (record, state[1], *whole), is_free=True)
        if written is not declared and actions:
            what = "the operator passes, its write being put off"
            yield from _edge(state, what, (state[0], state[1], *whole), is_free=True)
        yield from self._crashes(state, written, actions)
        yield from self._usurped(state, actions)

    def _recorded(self, declared: Declared) -> int:
        return self._declared.number(declared, declared.key)

    def _taken_over(self, state: State, decision: Decision) -> Iterator[Edge]:
        """Raise the epoch with the first write, once each worker has answered or had its time."""
        declared, pairs = self.declared(state), self.pairs(state)
        demand_forward(declared.status, decision.status)
        epoch = declared.epoch + 1
        written = replace(declared, status=decision.status, epoch=epoch, is_led=True)
        is_heard = all(known.report or not worker.exists for worker, known in pairs)
        left = self._spend(state[1], None if is_heard else Fault.SILENCE)
        if left is not None:
            pairs = [(worker, known.led(epoch)) for worker, known in pairs]
            numbers = self.packed(declared, self._budgets.values[left], pairs)[2:]
            after = self._carried_out(numbers, decision.actions, epoch)
            what = "the new operator takes over and passes"
            target = (self._recorded(written), left, *after)
            yield from _edge(state, what, target, is_free=is_heard)

    def _crashes(
        self, state: State, written: Declared, actions: tuple[Action, ...]
    ) -> Iterator[Edge]:
        left = self._spend(state[1], Fault.CRASH)
        if left is None:
            return
        declared = self.declared(state)
        again = self._recorded(_restarted(declared))
        yield from _edge(state, "the operator dies", (again, left, *self._forgotten(state[2:])))
        again = self._recorded(_restarted(written))
        for count in range(len(actions)):
            some = self._carried_out(state[2:], actions[:count], declared.epoch)
            what = f"the operator dies after {count} actions of a pass"
            yield from _edge(state, what, (again, left, *self._forgotten(some)))

    def _usurped(self, state: State, actions: tuple[Action, ...]) -> Iterator[Edge]:
        left = self._spend(state[1], Fault.STALE)
        if left is None:
            return
        declared = self.declared(state)
        commands = tuple(a for a in actions if isinstance(a, Sent))
        last = self._carried_out(state[2:], commands, declared.epoch)
        what = "another operator takes over, the first acts once more"
        after = (self._recorded(_restarted(declared)), left, *self._forgotten(last))
        yield from _edge(state, what, after)

    def _patches(self, state: State) -> Iterator[Edge]:
        left = self._spend(state[1], Fault.PATCH)
        if left is None:
            return
        declared = self.declared(state)
        for version in self.config.fates:
            if version not in {declared.target, "base"}:
                after = (self._recorded(declared.asking(version)), left, *state[2:])
                yield from _edge(state, f"the user asks for {version}", after)

    def _carried_out(
        self, pairs: tuple[int, ...], actions: Iterable[Action], epoch: int
    ) -> tuple[int, ...]:
        after = list(pairs)
        for action in actions:
            place = 2 * (action.ordinal if isinstance(action, CreatePod) else _ordinal(action))
            after[place : place + 2] = self._after(after[place], after[place + 1], action, epoch)
        return tuple(after)

    def _after(self, worker: int, known: int, action: Action, epoch: int) -> tuple[int, int]:
        """Carry one action out; each is worked out once for each pair."""
        key = (worker, known, action, epoch)
        if key not in self._done:
            pair = _done(self._workers.values[worker], self._known.values[known], action, epoch)
            demand_sound(pair[0], self.config.fates)
            self._done[key] = self._workers.number(pair[0]), self._known.number(pair[1])
        return self._done[key]

    def _forgotten(self, pairs: tuple[int, ...]) -> tuple[int, ...]:
        """Let the operator die: what it sent may still arrive, and it remembers nothing."""
        after: list[int] = []
        for place in range(0, len(pairs), 2):
            pair = _forgotten(
                self._workers.values[pairs[place]], self._known.values[pairs[place + 1]]
            )
            after += [self._workers.number(pair[0]), self._known.number(pair[1])]
        return tuple(after)

    # --- what must be true of the fleet -----------------------------------------------------------

    def demand_promises(self, state: State) -> None:
        """See that not too many clients wait, and that a bad version is kept to few."""
        workers = [self._workers.values[w] for w in state[2::2]]
        out = sum(worker.is_out for worker in workers)
        if out > self.config.limit:
            raise ViolationError(
                f"{out} workers in service are being changed, maxUnavailable is {self.config.limit}"
            )
        served = {w.engine.holds for w in workers if w.engine.is_up and w.engine.is_open}
        if self.config.is_one_version and len(served) > 1:
            raise ViolationError(f"a Barrier serves {' and '.join(sorted(served))} at once")
        harmed = [worker.harmed_by for worker in workers if worker.harmed_by]
        for operation in set(harmed):
            if harmed.count(operation) > self.config.limit:
                raise ViolationError(
                    f"a bad version took {harmed.count(operation)} workers out of service"
                )

    def is_goal(self, state: State) -> bool:
        """Return whether the fleet is as declared, or its rollout ended as it may end."""
        declared, workers = self.declared(state), [worker for worker, _ in self.pairs(state)]
        rollout = declared.status.rollout
        if rollout is None or declared.status.observed_generation != declared.generation:
            return False
        if of_record(rollout).asked != declared.target or not all(w.exists for w in workers):
            return False
        sound = [w for w in workers if w.state.stage is not Stage.DOUBT]
        if not all(w.state.stage is Stage.OPEN and w.is_ready for w in sound):
            return False
        return self._is_end(rollout, workers, sound)

    def _is_end(self, rollout: RolloutStatus, workers: list[Local], sound: list[Local]) -> bool:
        is_whole, held = len(sound) == len(workers), {w.engine.holds for w in sound}
        fate = self.config.fates[rollout.to]
        # A process that dies is held against no version (decision 4).
        may_fail = fate is not Fate.GOOD or self.config.faults.get(Fault.FAILURE, 0) > 0
        match rollout.phase:
            case "Completed" | "RolledBack":
                return is_whole and held == {rollout.to}
            case "Refused":
                return is_whole and fate is Fate.REFUSED
            case "Failed" | "Held":
                return may_fail or bool(self.config.faults.get(Fault.OVERDUE, 0))
            case _:
                # Some hold it, some failed: they stay out until a person acts.
                told = all(w.failure is not None for w in workers if w not in sound)
                return may_fail and not is_whole and held <= {rollout.to} and told

    def described(self, state: State) -> list[str]:
        """Return a state in words."""
        declared = self.declared(state)
        rollout = declared.status.rollout
        record = "none" if rollout is None else f"{rollout.id} {rollout.from_version or '-'}"
        record += "" if rollout is None else f" to {rollout.to}: {rollout.phase}"
        lines = [f"    target {declared.target}; rollout {record}; epoch {declared.epoch}"]
        for place, (worker, known) in enumerate(self.pairs(state)):
            mail = f"; on its way {', '.join(map(str, worker.mail))}" if worker.mail else ""
            lines.append(f"    {place}: {worker}{mail}; known: {known}")
        return lines


def _edge(state: State, what: str, after: State, *, is_free: bool = False) -> Iterator[Edge]:
    if after != state:
        yield Edge(what, after, is_free)


def _restarted(declared: Declared) -> Declared:
    return replace(declared, is_led=False)


def _forgotten(worker: Local, known: Known) -> tuple[Local, Known]:
    """Let the operator die: what it sent may still arrive, and it remembers nothing."""
    if known.calling is None or known.is_delivered:
        return worker, Known()
    mail: tuple[Command, ...] = tuple(sorted((*worker.mail, known.calling), key=str))
    return worker._replace(mail=mail), Known()


def _ordinal(action: DeletePod | MarkPod | WorkerCommand) -> int:
    name = action.name if isinstance(action, DeletePod | MarkPod) else action.worker
    return int(name.rpartition("-")[2])


def _done(worker: Local, known: Known, action: Action, epoch: int) -> tuple[Local, Known]:
    match action:
        case CreatePod():
            return (worker, known) if worker.exists else (created(worker), Known(epoch=known.epoch))
        case DeletePod():
            is_it = worker.exists and action.uid == str(worker.pod)
            return (gone(worker), Known(epoch=known.epoch)) if is_it else (worker, known)
        case MarkPod():
            if not worker.exists or action.uid != str(worker.pod):
                return worker, known
            return worker._replace(gate=action.ready, label=label_of(action.version)), known
        case Prepare() | Update() | Resume():
            if not worker.exists:
                return worker, known
            return worker, sent(known, action, epoch, worker.pod)
        case Pause() | Flush() | LoadAdapter() | UnloadAdapter():
            raise ViolationError("the operator asks for what neither spec nor trainer asked for")


def demand_forward(before: FleetStatus, after: FleetStatus) -> None:
    """See that what counts up never goes back."""
    if after.observed_generation < before.observed_generation:
        raise ViolationError("observedGeneration goes back")
    old, new = before.rollout, after.rollout
    if old is not None and (new is None or new.id < old.id):
        raise ViolationError(f"the rollout's id goes back from {old.id} to {new and new.id}")
    if old is not None and new is not None and old.id == new.id and old.to != new.to:
        raise ViolationError(f"rollout {old.id} changes its version from {old.to} to {new.to}")
    if before.trainer_target != after.trainer_target:
        raise ViolationError("the operator changes what a trainer asked for")
