"""The next step of a fleet: a pure function of what is observed.

``plan`` decides one step and remembers nothing. If only a prefix of it is carried out, the next
observations lead to the same end (tests/property). Pods and weights share a budget where both
take workers out of service:

- pods: create missing ones, delete surplus ones, and replace outdated ones, so that at most
  maxUnavailable workers are not ready because of it;
- weights: prepare on every worker while it serves, then change (strategy/rolling.py).
"""

from dataclasses import dataclass, replace

from rlfleet_operator.core import readiness
from rlfleet_operator.core.model.actions import Action, CreatePod, DeletePod
from rlfleet_operator.core.model.world import World
from rlfleet_operator.core.rollout import outage
from rlfleet_operator.core.rollout.next_rollout import current
from rlfleet_operator.core.rollout.rollout import Rollout
from rlfleet_operator.core.sharing.supplied import supplied
from rlfleet_operator.core.strategy import lora
from rlfleet_operator.core.strategy.rolling import weights


@dataclass(frozen=True, slots=True)
class Plan:
    """The actions that are due, and the rollout that must be recorded before them."""

    rollout: Rollout | None
    actions: tuple[Action, ...]


def plan(world: World) -> Plan:
    """Return the next step; empty once the fleet is as declared.

    Workers get no command of a rollout that status does not record yet.
    """
    if world.fleet.deleting:
        return Plan(None, ())
    rollout = current(world)
    on_pods = _pods(world)
    actions: list[Action] = [*on_pods, *readiness.marks(world, rollout)]
    if rollout is None or not rollout.is_new:
        left = _without(world, on_pods)
        commands = supplied(weights(left, rollout), left)
        actions += commands
        actions += lora.calls(left, {command.worker for command in commands})
    return Plan(rollout, tuple(actions))


def _pods(world: World) -> list[Action]:
    made: list[Action] = [CreatePod(w.ordinal) for w in world.exceptional if w.pod is None]
    ended: list[Action] = [
        DeletePod(w.name, w.pod.uid, "scaled down")
        for w in reversed(world.surplus)
        if w.pod is not None and not w.pod.terminating
    ]
    return made + ended + outage.replacements(world)


def _without(world: World, actions: list[Action]) -> World:
    """Return the world in which the pods to delete terminate, so that they get no command."""
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
