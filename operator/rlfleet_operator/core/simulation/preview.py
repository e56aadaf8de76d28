"""Previews a change: executes its plan on a simulated fleet, with the operator's own planner.

No request leaves this process. The preview assumes that every version loads and is proved.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

from rlfleet_contract.worker.commands import Verb
from rlfleet_operator.core.model.actions import Action, CreatePod, DeletePod, Prepare, Update
from rlfleet_operator.core.model.world import World
from rlfleet_operator.core.rollout import budget, version_order
from rlfleet_operator.core.rollout.cohorts import canaries, canary_of, kept, selected
from rlfleet_operator.core.rollout.next_rollout import is_requested
from rlfleet_operator.core.rollout.rollout import ENDED, served
from rlfleet_operator.core.simulation import model_fleet
from rlfleet_operator.crd.fleet_status import FleetStatus
from rlfleet_operator.crd.rollout_spec import CanarySpec, Promote, Strategy

_SIMULATED = 64
"""The operator previews larger fleets by arithmetic: a simulation takes a pass per batch."""
_NAMED = 8
_TOGETHER = {
    Verb.PAUSE: "pause",
    Verb.VERIFY: "load and verify behind closed gates",
    Verb.RESUME: "resume",
}


def with_preview(world: World, status: FleetStatus) -> FleetStatus:
    """Return the status with its preview; empty unless the spec asks for a dry run."""
    is_asked = world.fleet.spec.rollout.dry_run and is_requested(world)
    lines = preview(world, largest=_SIMULATED) if is_asked else []
    return status.model_copy(update={"preview": lines})


def preview(world: World, *, largest: int | None = None) -> list[str]:
    """Return the effect of the spec's change, line by line."""
    version = world.fleet.target
    if version is None:
        return ["nothing to do: spec.weightVersion is empty, serving workers do not change"]
    objection = version_order.objection(world)
    if objection is not None:
        return [f"refused: {objection.message}"]
    is_large = largest is not None and len(world.desired) > largest
    steps = list(_reckoned(world) if is_large else _batches(model_fleet.settled(_unheld(world))))
    if not steps:
        return [f"nothing to do: all workers serve {version}"]
    return [*_head(world, version), *steps, *_pause(world)]


def _unheld(world: World) -> World:
    """Return the world without rules that wait for a person or for time, which never come here."""
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
        yield f"prepare while serving: about {size:,} bytes per worker (size of the last version)"


def _waits(world: World) -> Iterator[str]:
    """Yield the waits that the simulation leaves out."""
    rules, canary = world.fleet.spec.rollout, canary_of(world)
    if rules.paused:
        yield "rollout.paused is true: no batch starts until it is false"
    if canary is not None and canary.hold_seconds:
        yield f"canaries serve for {canary.hold_seconds} s before the other workers change"
    if canary is not None and canary.promote is Promote.MANUAL:
        yield "the other workers wait until rollout.canary.promotedVersion names the version"


def _reckoned(world: World) -> Iterator[str]:
    rules, chosen = world.fleet.spec.rollout, len(selected(world))
    if rules.strategy is Strategy.BARRIER:
        yield f"all {chosen} workers pause, load, verify and resume together"
        return
    out = budget.max_unavailable(world.fleet.spec)
    first = len(canaries(world))
    rest = chosen - first
    if first:
        yield f"canaries: {first} workers"
    yield f"{-(-rest // out)} batches of {min(out, rest)} workers, lowest ordinals first"


def _batches(world: World) -> Iterator[str]:
    """Yield the changes of pods and weights, pass by pass."""
    number = 0
    is_barrier = world.fleet.spec.rollout.strategy is Strategy.BARRIER
    limit = 4 * len(world.workers) + 50
    for step in model_fleet.run(world, {}, limit=limit):
        yield from _pods_and_prepares(step.plan.actions)
        changed = [a for a in step.plan.actions if isinstance(a, Update)]
        names = [a.worker for a in changed]
        if changed and is_barrier:
            yield f"{_TOGETHER[changed[0].through]}: {_names(names)}"
        elif changed:
            number += 1
            yield f"batch {number}: {_canary_prefix(names, world)}{_names(names)}"


def _pods_and_prepares(actions: Sequence[Action]) -> Iterator[str]:
    """Yield the pods that a pass creates and deletes, and the workers that it prepares."""
    made = [str(a.ordinal) for a in actions if isinstance(a, CreatePod)]
    ended = [f"{a.name} ({a.why})" for a in actions if isinstance(a, DeletePod)]
    prepared = [a.worker for a in actions if isinstance(a, Prepare)]
    if made:
        yield f"create pods of ordinals {_names(made)}"
    if ended:
        yield f"delete pods {_names(ended)}"
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
        yield "expected pause per worker: unknown before the first rollout"
        return
    yield (
        f"expected pause per worker: {round(median(windows))} ms"
        f" (median of the last {len(windows)} rollouts)"
    )
