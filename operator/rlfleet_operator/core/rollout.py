"""Which rollout is under way: derived from the spec and what was recorded of the last.

A rollout is recorded in status before its first side effect, and its id counts
up with every change of the target, so that A, B, A are three rollouts. Its id
is the operation under which every command to a worker runs: a restarted
operator repeats the same commands under the same operation.
"""

from collections import Counter
from dataclasses import dataclass, replace

from rlfleet_contract.api import BASE_VERSION
from rlfleet_operator.core.world import Worker, World

FAILED = "Failed"
COMPLETED = "Completed"
REFUSED = "Refused"


@dataclass(frozen=True, slots=True)
class Rollout:
    """One declared change of the fleet's version."""

    id: int
    before: str
    """What the fleet served when it began; empty if nothing."""
    to: str
    is_failed: bool
    """Ended: the version itself is suspect, and is not tried again until the spec changes."""
    is_completed: bool
    """Once every worker had proved it; a worker that comes later catches up with it."""
    is_new: bool
    """Not recorded in status yet: nothing may be done for it before it is."""

    @property
    def operation(self) -> str:
        """The name that its commands carry."""
        return f"rollout-{self.id}"


def current(world: World) -> Rollout | None:
    """Return the rollout that the spec asks for; None when the spec names no version."""
    target, recorded = world.fleet.spec.weight_version, world.fleet.status.rollout
    if target is None:
        return None
    if recorded is None or recorded.to != target or world.fleet.status.target != target:
        next_id = 1 if recorded is None else recorded.id + 1
        return Rollout(
            next_id, served(world), target, is_failed=False, is_completed=False, is_new=True
        )
    rollout = Rollout(
        recorded.id,
        recorded.from_version,
        target,
        is_failed=recorded.phase == FAILED,
        is_completed=recorded.phase == COMPLETED,
        is_new=False,
    )
    if not rollout.is_completed and is_suspect(world, rollout):
        return replace(rollout, is_failed=True)
    return rollout


def is_doubted(world: World, version: str, operation: str) -> bool:
    """Tell whether a version failed on a worker and held on none.

    One proof of the version anywhere acquits it: then a failure is the worker's own.
    """
    held = any(w.proved == version for w in world.desired)
    return not held and any(w.failed(version, operation) for w in world.desired)


def is_suspect(world: World, rollout: Rollout) -> bool:
    """Tell whether the target is doubted and no try is under way that could acquit it."""
    is_settled = not any(w.is_changing for w in world.desired)
    return is_settled and is_doubted(world, rollout.to, rollout.operation)


def served(world: World) -> str:
    """Return the version that most workers serve; what was recorded when none does."""
    votes = Counter(w.proved for w in world.desired if w.is_open and w.proved)
    recorded = world.fleet.status.rollout
    if votes:
        # Ties go to the version that was recorded as served, then to the name.
        serving = world.fleet.status.serving
        return max(votes, key=lambda v: (votes[v], v == serving, v))
    if recorded is None:
        return ""
    return recorded.to if recorded.phase == COMPLETED else recorded.from_version


def goal_of(worker: Worker, world: World, rollout: Rollout | None) -> str | None:
    """Return the version that this worker shall serve next; None: leave it as it is."""
    if rollout is None:
        # A trainer drives: only a worker that serves nothing is brought along.
        return None if worker.is_open or worker.is_changing else served(world) or BASE_VERSION
    if not rollout.is_failed and not _must_fall_back(worker, world, rollout):
        return rollout.to
    if worker.is_open or worker.failed(rollout.to, rollout.operation):
        return None
    return rollout.before or None


def _must_fall_back(worker: Worker, world: World, rollout: Rollout) -> bool:
    """Tell whether a worker that serves nothing shall not wait for a refused checkpoint.

    Its refusal is forgotten when it prepares the older version, so the recorded
    phase stands for it until the change has begun.
    """
    recorded = world.fleet.status.rollout
    if worker.is_open or not rollout.before or rollout.is_completed:
        return False
    is_recorded = recorded is not None and recorded.phase == REFUSED
    is_prepared = worker.report is not None and worker.report.prepared == rollout.before
    return worker.refused(rollout.to, rollout.operation) or (is_recorded and is_prepared)
