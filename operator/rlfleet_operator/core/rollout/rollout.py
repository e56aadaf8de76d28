"""A rollout: one declared change of the fleet's version, as it stands on record.

It is recorded in status before its first side effect. Its id counts up with every
change of the target, so that A, B, A are three rollouts, and a rollback is one more. Its
id is the operation under which every command to a worker runs: a restarted operator
repeats the same commands under the same operation.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from rlfleet_operator.core.model.world import World
from rlfleet_operator.crd.fleet_status import RolloutStatus

COMPLETED, ROLLED_BACK = "Completed", "RolledBack"
FAILED, HELD = "Failed", "Held"
SUPERSEDED = "Superseded"
"""Its version left the spec, or another took its place."""
REFUSED = "Refused"
PAUSED, CANARY_HOLD, PARTITIONED = "Paused", "CanaryHold", "Partitioned"
ENDED = frozenset({COMPLETED, ROLLED_BACK, FAILED, HELD, SUPERSEDED})
"""The phases in which a rollout asks for no further change."""


class Outcome(StrEnum):
    """How far a rollout has come."""

    ACTIVE = "Active"
    COMPLETED = "Completed"
    """Every worker had proved it; one that comes later catches up with it."""
    STOPPED = "Stopped"
    """Its version failed: nobody tries it until the spec asks anew."""


class Reason(StrEnum):
    """Why a rollout began."""

    SPEC = "Spec"
    TRAINER = "Trainer"
    RESTART = "Restart"
    ROLLBACK = "Rollback"

    @classmethod
    def _missing_(cls, value: object) -> "Reason":  # noqa: ARG003 - enum's signature
        """Read what a newer operator has recorded, and this one has no word for."""
        return cls.SPEC


CATCH_UP = "catch-up"
"""The operation of changes that no rollout asks for."""
_OPERATION = "rollout-"
_GIVEN = re.compile(rf"{_OPERATION}(\d{{1,9}})")


@dataclass(frozen=True, slots=True)
class Rollout:
    """One change of the fleet's version."""

    id: int
    before: str
    """What the fleet served when it began; empty if nothing."""
    to: str
    asked: str
    """The version that was asked for: ``to``, but for a rollback."""
    reason: Reason = Reason.SPEC
    outcome: Outcome = Outcome.ACTIVE
    is_new: bool = False
    """Not on record like this: nothing may be done for it before it is."""
    phase: str = ""
    """The phase that a rollout which has been stopped shall show."""
    why: str = ""
    """Why it was stopped, or rolled back."""

    @property
    def operation(self) -> str:
        """The name that its commands carry."""
        return f"{_OPERATION}{self.id}"

    @property
    def fallback(self) -> str:
        """The version for workers that cannot have ``to``; empty if there is none."""
        return "" if self.reason is Reason.ROLLBACK else self.before

    @property
    def is_active(self) -> bool:
        """Whether it still changes workers that serve."""
        return self.outcome is Outcome.ACTIVE

    @property
    def is_stopped(self) -> bool:
        """Whether its version is not to be tried any more."""
        return self.outcome is Outcome.STOPPED

    @property
    def is_completed(self) -> bool:
        """Whether it has reached every worker once."""
        return self.outcome is Outcome.COMPLETED


def of_record(recorded: RolloutStatus) -> Rollout:
    """Return the rollout that is on record."""
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
    )


def operation_of(rollout: Rollout | None) -> str:
    """Return the operation under which workers change now."""
    return CATCH_UP if rollout is None else rollout.operation


def is_of_rollout(operation: str | None) -> bool:
    """Return whether a command was given for a rollout, whichever."""
    return operation is not None and operation.startswith(_OPERATION)


def last_id(world: World) -> int:
    """Return the highest id that was given, as far as status and workers know.

    A fleet that is restored without its status must not give an id again: a sidecar remembers
    what failed under it.
    """
    recorded = world.fleet.status.rollout
    reports = [w.report for w in world.workers if w.report]
    known = [r.operation for r in reports]
    for report in reports:
        told = (report.failure, report.refusal, report.exits, report.last_change, report.running)
        known += [one.operation for one in told if one is not None]
    ids = [int(found[1]) for name in known if name and (found := _GIVEN.fullmatch(name))]
    return max([0 if recorded is None else recorded.id, *ids])


def served(world: World) -> str:
    """Return the version that most workers serve; what was recorded when none does."""
    votes, recorded = world.votes, world.fleet.status.rollout
    if votes:
        # Ties go to the version that was recorded as served, then to the name.
        serving = world.fleet.status.serving
        return max(votes, key=lambda v: (votes[v], v == serving, v))
    if recorded is None:
        return ""
    rollout = of_record(recorded)
    is_its = rollout.is_completed or rollout.reason is Reason.ROLLBACK
    return rollout.to if is_its else rollout.fallback
