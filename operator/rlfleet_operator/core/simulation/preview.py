"""What a change would do, told without doing it: the plan, carried out on a model fleet.

The same planner that drives a fleet decides here, and nobody outside this process hears
of it. Every version is taken to be good.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

from rlfleet_contract.worker.commands import Verb
from rlfleet_operator.core.model.actions import Action, CreatePod, DeletePod, Prepare, Update
from rlfleet_operator.core.model.world import World
from rlfleet_operator.core.rollout import budget, version_order
from rlfleet_operator.core.rollout.cohorts import canaries, canary_of, kept, selected
from rlfleet_operator.core.rollout.next_rollout import is_wished
from rlfleet_operator.core.rollout.rollout import ENDED, served
from rlfleet_operator.core.simulation import model_fleet
from rlfleet_operator.crd.fleet_status import FleetStatus
from rlfleet_operator.crd.rollout_spec import CanarySpec, Promote, Strategy

_SIMULATED = 64
"""In a running operator, larger fleets are told by arithmetic: the model costs a pass a batch."""
_NAMED = 8
_TOGETHER = {
    Verb.PAUSE: "pause",
    Verb.VERIFY: "load and prove behind closed gates",
    Verb.RESUME: "resume",
}


def with_preview(world: World, status: FleetStatus) -> FleetStatus:
    """Return the status with what a dry run would do; empty unless one is asked for."""
    is_asked = world.fleet.spec.rollout.dry_run and is_wished(world)
    lines = preview(world, largest=_SIMULATED) if is_asked else []
    return status.model_copy(update={"preview": lines})


def preview(world: World, *, largest: int | None = None) -> list[str]:
    """Return what the spec's change would do, line by line."""
    version = world.fleet.target
    if version is None:
        return ["no weightVersion in the spec: workers that serve are left as they are"]
    objection = version_order.objection(world)
    if objection is not None:
        return [f"refused: {objection.message}"]
    is_large = largest is not None and len(world.desired) > largest
    steps = list(_reckoned(world) if is_large else _batches(model_fleet.settled(_unheld(world))))
    if not steps:
        return [f"nothing to do: every worker serves {version}"]
    return [*_head(world, version), *steps, *_pause(world)]


def _unheld(world: World) -> World:
    """Return the world without what waits for a person or for time: a model has neither."""
    rules = world.fleet.spec.rollout
    canary = canary_of(world)
    changes: dict[str, object] = {"dry_run": False, "paused": False}
    if canary is not None:
        changes["canary"] = CanarySpec(count=canary.count)
    spec = world.fleet.spec.model_copy(update={"rollout": rules.model_copy(update=changes)})
    return replace(world, fleet=replace(world.fleet, spec=spec))


def _head(world: World, version: str) -> Iterator[str]:
    rules = world.fleet.spec.rollout
    chosen, everyone = len(selected(world)), len(world.desired)
    out = budget.max_unavailable(world.fleet.spec)
    together = "all at once" if rules.strategy is Strategy.BARRIER else f"at most {out} at once"
    before = served(world) or "nothing"
    yield f"{before} to {version} by {rules.strategy}: {chosen} of {everyone} workers, {together}"
    if kept(world):
        yield f"rollout.partition: ordinals below {kept(world)} keep their version"
    yield from _waits(world)
    size = max((w.report.prepared_bytes or 0 for w in world.workers if w.report), default=0)
    if size:
        yield f"prepare, while all serve: about {size:,} bytes on each worker (the last version's)"


def _waits(world: World) -> Iterator[str]:
    """Yield for what the rollout waits that a model cannot know."""
    rules, canary = world.fleet.spec.rollout, canary_of(world)
    if rules.paused:
        yield "rollout.paused holds every batch until it is false"
    if canary is not None and canary.hold_seconds:
        yield f"the canaries serve for {canary.hold_seconds} s before the others follow"
    if canary is not None and canary.promote is Promote.MANUAL:
        yield "the others wait until rollout.canary.promotedVersion names the version"


def _reckoned(world: World) -> Iterator[str]:
    rules, chosen = world.fleet.spec.rollout, len(selected(world))
    if rules.strategy is Strategy.BARRIER:
        yield f"all {chosen} workers pause, load, prove and resume together"
        return
    out = budget.max_unavailable(world.fleet.spec)
    first = len(canaries(world))
    rest = chosen - first
    if first:
        yield f"canaries: {first} workers"
    yield f"{-(-rest // out)} batches of {min(out, rest)} workers, the lowest ordinals first"


def _batches(world: World) -> Iterator[str]:
    """Yield what happens to pods and weights, pass by pass."""
    number = 0
    is_barrier = world.fleet.spec.rollout.strategy is Strategy.BARRIER
    limit = 4 * len(world.workers) + 50
    for step in model_fleet.run(world, {}, limit=limit):
        yield from _beside_batches(step.plan.actions)
        changed = [a for a in step.plan.actions if isinstance(a, Update)]
        names = [a.worker for a in changed]
        if changed and is_barrier:
            yield f"{_TOGETHER[changed[0].through]}: {_names(names)}"
        elif changed:
            number += 1
            yield f"batch {number}: {_canary_prefix(names, world)}{_names(names)}"


def _beside_batches(actions: Sequence[Action]) -> Iterator[str]:
    """Yield what a pass does to pods, and what it prepares."""
    made = [str(a.ordinal) for a in actions if isinstance(a, CreatePod)]
    ended = [f"{a.name} ({a.why})" for a in actions if isinstance(a, DeletePod)]
    prepared = [a.worker for a in actions if isinstance(a, Prepare)]
    if made:
        yield f"create the pods of ordinals {_names(made)}"
    if ended:
        yield f"end the pods {_names(ended)}"
    if prepared:
        yield f"prepare: {_names(prepared)}"


def _canary_prefix(names: list[str], world: World) -> str:
    first = {w.name for w in canaries(world)}
    return "canaries, " if first and set(names) <= first else ""


def _names(names: list[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _pause(world: World) -> Iterator[str]:
    status = world.fleet.status
    windows = [past.window_ms for past in status.history if past.window_ms is not None]
    newest = status.rollout
    if newest and newest.phase in ENDED and newest.timings and newest.timings.window:
        windows.insert(0, newest.timings.window.median_ms)
    if not windows:
        yield "expected pause of each worker: unknown before the first rollout"
        return
    yield (
        f"expected pause of each worker: {round(median(windows))} ms"
        f" (median of the last {len(windows)} rollouts)"
    )
