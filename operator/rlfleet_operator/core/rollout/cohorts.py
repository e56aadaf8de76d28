"""Which workers a rollout is for, and which of them go first."""

from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.rollout import budget
from rlfleet_operator.crd.rollout_spec import CanarySpec, Promote, Strategy


def kept(world: World) -> int:
    """Return below which ordinal workers keep the version they have (rollout.partition)."""
    spec = world.fleet.spec
    return budget.share(spec.rollout.partition, spec.replicas)


def selected(world: World) -> tuple[Worker, ...]:
    """Return the workers that shall change."""
    first = kept(world)
    return tuple(w for w in world.desired if w.ordinal >= first)


def canary_of(world: World) -> CanarySpec | None:
    """Return how the first workers are treated; None when all are treated alike."""
    rollout = world.fleet.spec.rollout
    if rollout.strategy is not Strategy.CANARY:
        return None
    return rollout.canary or CanarySpec()


def is_canary(worker: Worker, world: World) -> bool:
    """Return whether a worker is among those that change first."""
    canary, first = canary_of(world), kept(world)
    if canary is None:
        return False
    count = budget.resolve(canary.count, world.fleet.spec.replicas - first)
    return first <= worker.ordinal < first + count


def canaries(world: World) -> tuple[Worker, ...]:
    """Return the workers that change first; nobody unless the strategy is Canary."""
    return tuple(w for w in selected(world) if is_canary(w, world))


def is_promoted(world: World) -> bool:
    """Return whether the workers after the canaries may change.

    The moment since which the canaries serve is on record, so that a restarted operator
    does not count anew.
    """
    canary, recorded = canary_of(world), world.fleet.status.rollout
    if canary is None or (recorded is not None and recorded.reason == "Rollback"):
        return True
    if recorded is None or recorded.canary_epoch is None:
        return False
    if canary.promote is Promote.MANUAL and canary.promoted_version != recorded.to:
        return False
    return world.moment - recorded.canary_epoch >= canary.hold_seconds


def is_eligible(worker: Worker, world: World) -> bool:
    """Return whether a worker may change now: a canary may, and each once they are promoted."""
    return is_promoted(world) or is_canary(worker, world)


def is_suspended(world: World) -> bool:
    """Return whether no worker that serves may be taken out now, whoever it is."""
    recorded = world.fleet.status.rollout
    settling = recorded is not None and recorded.settles_in_s(world.moment) > 0
    return settling or world.fleet.spec.rollout.paused


def hold_left_s(world: World) -> float | None:
    """Return in how many seconds a hold ends of itself; None while no time runs."""
    canary, recorded = canary_of(world), world.fleet.status.rollout
    times = [0.0 if recorded is None else recorded.settles_in_s(world.moment)]
    if world.pause is not None:
        times.append(world.pause.until_epoch - world.moment)
    if canary is not None and recorded is not None and recorded.canary_epoch is not None:
        times.append(recorded.canary_epoch + canary.hold_seconds - world.moment)
    return min((left for left in times if left > 0), default=None)
