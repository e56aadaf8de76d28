"""The next step of a fleet: a pure function of what is observed.

``plan`` decides one step and remembers nothing: whatever prefix of it was
carried out, the next observation leads to the same end (tests/property).
Pods and weights are two paths that share a budget only where both take workers
out of service:

- pods: make what is missing, end what is too much, replace what is outdated,
  so that at most maxUnavailable workers are not ready because of it;
- weights: prepare everywhere while everything serves, then commit (strategy/rolling.py).
"""

from dataclasses import dataclass, replace

from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.actions import Action, CreatePod, DeletePod, MarkPod
from rlfleet_operator.core.model.version_label import label_of
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.rollout import outage, version_order
from rlfleet_operator.core.rollout.next_rollout import current
from rlfleet_operator.core.rollout.rollout import Rollout
from rlfleet_operator.core.strategy import lora
from rlfleet_operator.core.strategy.rolling import weights


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, and which rollout has to be on record first."""

    rollout: Rollout | None
    actions: tuple[Action, ...]


def plan(world: World) -> Plan:
    """Return the next step; empty once the fleet is as declared.

    Nothing is asked of a worker for a rollout that is not on record.
    """
    if world.fleet.deleting:
        return Plan(None, ())
    rollout = current(world)
    on_pods = _pods(world)
    actions: list[Action] = [*on_pods, *_marks(world, rollout)]
    if rollout is None or not rollout.is_new:
        left = _without(world, on_pods)
        commands = weights(left, rollout)
        actions += commands
        actions += lora.calls(left, {command.worker for command in commands})
    return Plan(rollout, tuple(actions))


# --- pods ---------------------------------------------------------------------------------------


def _pods(world: World) -> list[Action]:
    wanted = world.fleet.spec.replicas
    made: list[Action] = [CreatePod(w.ordinal) for w in world.desired if w.pod is None]
    ended: list[Action] = [
        DeletePod(w.name, w.pod.uid, "scaled down")
        for w in reversed(world.workers)
        if w.pod is not None and w.ordinal >= wanted and not w.pod.terminating
    ]
    return made + ended + outage.replacements(world)


def _without(world: World, actions: list[Action]) -> World:
    """Return the world as it is once these pods end: they are asked nothing, and are out."""
    ended = {action.name for action in actions if isinstance(action, DeletePod)}
    if not ended:
        return world
    return replace(
        world,
        workers=tuple(
            replace(w, pod=replace(w.pod, terminating=True)) if w.pod and w.name in ended else w
            for w in world.workers
        ),
    )


# --- the readiness gate and the label of each pod -------------------------------------------------


def _marks(world: World, rollout: Rollout | None) -> list[Action]:
    stale = version_order.stale(world) if _is_strict(world) else {}
    marks = (_mark(w, rollout, stale.get(w.name) or _lacks(w, world)) for w in world.workers)
    return [mark for mark in marks if mark is not None]


def _mark(worker: Worker, rollout: Rollout | None, stale: str | None) -> MarkPod | None:
    """Return what has to be written on the pod; None while it is right or nobody knows."""
    pod = worker.pod
    if pod is None or worker.report is None or not worker.is_live:
        return None
    if worker.is_changing and worker.stage is not Stage.DOUBT:
        # Its clients wait at the gate: it stays as routable as it was.
        return None
    ready = worker.is_open and stale is None and _is_allowed(worker.proved, rollout)
    version = worker.proved if worker.is_open else None
    relabels = pod.version_label != label_of(version)
    regates = pod.weights_ready != ready
    if not relabels and not regates:
        return None
    message = stale or _mark_message(worker, ready=ready)
    return MarkPod(pod.name, pod.uid, ready, version, message, relabels, regates)


def _lacks(worker: Worker, world: World) -> str | None:
    """Tell what a worker that takes no traffic yet lacks of adapters.

    One that takes traffic goes on when another adapter is asked for.
    """
    if worker.pod is None or worker.pod.weights_ready:
        return None
    if not worker.is_open:
        return None
    if lora.is_unheard(worker, world):
        return "waits to hear which adapters the others serve"
    lacking = lora.lacking(worker, world)
    return None if lacking is None else f"has not loaded adapter {lacking.name} yet"


def _is_strict(world: World) -> bool:
    bounds = world.fleet.spec.staleness
    return bounds is not None and bounds.on_violation == "Unready"


def _is_allowed(version: str | None, rollout: Rollout | None) -> bool:
    """Tell whether a proved version may take traffic.

    Until a rollout has completed, workers of every version it replaces go on serving:
    one that gave way to it in the middle has left more than one.
    """
    if rollout is None or not rollout.is_completed:
        return version is not None
    return version == rollout.to


def _mark_message(worker: Worker, *, ready: bool) -> str:
    if ready:
        return "serves what it has proved: see the label"
    if worker.report and worker.report.failure:
        return worker.report.failure.message
    if worker.is_open:
        return f"serves {worker.proved}, which the fleet does not ask for"
    return "has not proved the fleet's version"
