"""Which workers a rollout includes, and which of them change first."""

from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.rollout import budget
from rlfleet_operator.crd.rollout_spec import CanarySpec, Promote, Strategy


def kept(world: World) -> int:
    """Return the ordinal below which workers keep their version (rollout.partition)."""
    spec = world.fleet.spec
    return budget.share(spec.rollout.partition, spec.replicas)


def selected(world: World) -> tuple[Worker, ...]:
    """Return the workers that change, those from the partition's ordinal on."""
    first = kept(world)
    return tuple(w for w in world.desired if w.ordinal >= first)


def exceptional(world: World) -> tuple[Worker, ...]:
    """Return the selected workers that are not plain."""
    first = kept(world)
    return tuple(w for w in world.exceptional if w.ordinal >= first)


def canary_of(world: World) -> CanarySpec | None:
    """Return the settings of the canaries; None for other strategies."""
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
    """Return the workers that change first; none unless the strategy is Canary."""
    if canary_of(world) is None:
        return ()
    return tuple(w for w in selected(world) if is_canary(w, world))


def is_promoted(world: World) -> bool:
    """Return whether the workers after the canaries may change.

    Status records since when the canaries serve, so that a restarted operator continues to count.
    """
    canary, recorded = canary_of(world), world.fleet.status.rollout
    if canary is None or (recorded is not None and recorded.reason == "Rollback"):
        return True
    if recorded is None or recorded.canary_epoch is None:
        return False
    if canary.promote is Promote.MANUAL and canary.promoted_version != recorded.to:
        return False
    return world.moment - recorded.canary_epoch >= canary.hold_seconds


def awaits_promotion(world: World) -> bool:
    """Return whether the rollout is held though every worker may be a canary.

    Workers that left, or that are still to come, have not been promoted. A fleet that always had
    canaries alone has no others to wait for. Nor has one of which none left: the others had the
    version already, as on the way back from a canary.
    """
    canary, recorded = canary_of(world), world.fleet.status.rollout
    if canary is None or recorded is None or recorded.replicas is None or is_promoted(world):
        return False
    if 0 < recorded.replicas <= world.fleet.spec.replicas or recorded.from_version == recorded.to:
        return False
    members = recorded.replicas - budget.share(
        world.fleet.spec.rollout.partition, recorded.replicas
    )
    has_others = not members or members > budget.resolve(canary.count, members)
    return has_others and bool(recorded.from_version)


def has_begun_empty(world: World) -> bool:
    """Return whether the rollout began while the fleet had no worker."""
    recorded = world.fleet.status.rollout
    return recorded is not None and recorded.replicas == 0


def is_eligible(worker: Worker, world: World) -> bool:
    """Return whether a worker may change now: a canary, or any worker after the promotion."""
    return is_promoted(world) or is_canary(worker, world)


def is_suspended(world: World) -> bool:
    """Return whether no serving worker at all may be taken out of service now."""
    return _settles_in_s(world) > 0 or world.fleet.spec.rollout.paused


def _settles_in_s(world: World) -> float:
    """Return for how many seconds a rollout that quickly followed another changes no worker.

    A target that left for a moment begins again, though no rollout of the other was recorded.
    """
    recorded = world.fleet.status.rollout
    return 0.0 if recorded is None else recorded.settles_in_s(world.moment, world.asked_since)


def hold_left_s(world: World) -> float | None:
    """Return the seconds until a hold ends by time; None without one."""
    canary, recorded = canary_of(world), world.fleet.status.rollout
    times = [_settles_in_s(world)]
    if world.pause is not None:
        times.append(world.pause.until_epoch - world.moment)
    if canary is not None and recorded is not None and recorded.canary_epoch is not None:
        times.append(recorded.canary_epoch + canary.hold_seconds - world.moment)
    return min((left for left in times if left > 0), default=None)
