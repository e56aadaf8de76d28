"""A rollout: one declared change of the fleet's version, as status records it.

Status records it before its first side effect. Each change of the target gets the next id: A, B,
A are three rollouts, and a rollback is one more. The id names the operation of its commands, so
that a restarted operator repeats the same commands under the same operation.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from rlfleet_contract.worker.report import WorkerReport
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.crd.rollout_status import RolloutStatus

COMPLETED, ROLLED_BACK = "Completed", "RolledBack"
FAILED, HELD = "Failed", "Held"
SUPERSEDED = "Superseded"
"""Its version left the spec, or another rollout replaced it."""
REFUSED = "Refused"
PAUSED, CANARY_HOLD, PARTITIONED = "Paused", "CanaryHold", "Partitioned"
ENDED = frozenset({COMPLETED, ROLLED_BACK, FAILED, HELD, SUPERSEDED})
"""The phases in which a rollout changes no further worker."""


class Outcome(StrEnum):
    """Whether a rollout is active, and how it ended."""

    ACTIVE = "Active"
    COMPLETED = "Completed"
    """Every worker has proved its version; late joiners catch up."""
    STOPPED = "Stopped"
    """Its version failed: no worker retries it until the spec requests it again."""


class Reason(StrEnum):
    """Why a rollout began."""

    SPEC = "Spec"
    TRAINER = "Trainer"
    FOLLOW = "Follow"
    RESTART = "Restart"
    ROLLBACK = "Rollback"

    @classmethod
    def _missing_(cls, value: object) -> "Reason":  # noqa: ARG003 - enum's signature
        """Accept a reason that a newer operator has recorded."""
        return cls.SPEC


CATCH_UP = "catch-up"
"""The operation of changes outside of rollouts."""
_OPERATION = "rollout-"
_GIVEN = re.compile(rf"{_OPERATION}(\d{{1,9}})")
_LAST = 999_999_999
"""No fleet has so many rollouts: a higher number was written by hand. After int64's last one the
API server would take no status."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One change of the fleet's version."""

    id: int
    before: str
    """The version that the fleet served when it began; empty if none."""
    to: str
    asked: str
    """The requested version; differs from ``to`` only in a rollback."""
    reason: Reason = Reason.SPEC
    outcome: Outcome = Outcome.ACTIVE
    is_new: bool = False
    """Whether status must record it before any action."""
    phase: str = ""
    """The phase in status of a stopped rollout."""
    why: str = ""
    """Why it was stopped or rolled back."""
    kept: str = ""
    """The version of the workers below the partition; empty if none is recorded."""

    @property
    def operation(self) -> str:
        """The name that its commands carry."""
        return f"{_OPERATION}{self.id}"

    @property
    def fallback(self) -> str:
        """The version of workers that cannot load ``to``; empty if there is none."""
        return "" if self.reason is Reason.ROLLBACK else self.before

    @property
    def is_active(self) -> bool:
        """Whether it still changes serving workers."""
        return self.outcome is Outcome.ACTIVE

    @property
    def is_stopped(self) -> bool:
        """Whether workers must no longer try its version."""
        return self.outcome is Outcome.STOPPED

    @property
    def is_completed(self) -> bool:
        """Whether every worker has proved its version once."""
        return self.outcome is Outcome.COMPLETED


def of_record(recorded: RolloutStatus) -> Rollout:
    """Return the rollout that status records."""
    outcome = Outcome.ACTIVE
    if recorded.phase in {COMPLETED, ROLLED_BACK}:
        outcome = Outcome.COMPLETED
    elif recorded.phase in ENDED:
        outcome = Outcome.STOPPED
    reason, is_stopped = Reason(recorded.reason), outcome is Outcome.STOPPED
    return Rollout(
        id=recorded.id,
        before=recorded.from_version,
        to=recorded.to,
        asked=recorded.asked or recorded.to,
        reason=reason,
        outcome=outcome,
        phase=recorded.phase if is_stopped else "",
        why=recorded.message if is_stopped or reason is Reason.ROLLBACK else "",
        kept=recorded.kept,
    )


def operation_of(rollout: Rollout | None) -> str:
    """Return the operation of the commands that are due now."""
    return CATCH_UP if rollout is None else rollout.operation


def is_ours(worker: Worker, world: World) -> bool:
    """Return whether a worker's change is a rollout's, or one that no TTL ends.

    That is a late joiner's, or a pause of the fleet that is over. While a target is only previewed
    or rejected, heartbeats renew the TTL of both.
    """
    operation = worker.report.operation if worker.report else None
    if operation is None or operation.startswith(_OPERATION):
        return operation is not None
    ended, is_paused = world.fleet.status.trainer_pause, world.fleet.pause_at(world.moment)
    is_ended = ended is not None and operation == ended.operation and is_paused is None
    return (operation == CATCH_UP or is_ended) and world.fleet.target is not None


def last_id(world: World) -> int:
    """Return the highest id that status and workers know.

    A fleet restored without its status must not reuse an id, because sidecars remember what failed
    under it.
    """
    recorded = world.fleet.status.rollout
    known = [name for w in world.workers if w.report for name in _operations(w.report)]
    ids = [int(found[1]) for name in known if (found := _GIVEN.fullmatch(name))]
    ids.append(0 if recorded is None else recorded.id)
    return max(id_ for id_ in (0, *ids) if id_ < _LAST)


def _operations(report: WorkerReport) -> Iterator[str]:
    """Yield each operation that a worker remembers."""
    if report.operation:
        yield report.operation
    parts = (report.failure, report.refusal, report.exits, report.last_change, report.running)
    yield from (one.operation for one in parts if one is not None and one.operation)


def served(world: World) -> str:
    """Return the version that most workers serve; the recorded one if none serves."""
    votes, recorded = world.votes, world.fleet.status.rollout
    if votes:
        # In a tie the recorded version wins, then the greatest name.
        serving = world.fleet.status.serving
        return max(votes, key=lambda v: (votes[v], v == serving, v))
    if recorded is None:
        return ""
    rollout = of_record(recorded)
    is_its = rollout.is_completed or rollout.reason is Reason.ROLLBACK
    return rollout.to if is_its else rollout.fallback
