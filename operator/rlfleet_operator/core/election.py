"""Leader election, as one candidate decides it from a Lease and its own clock.

Clocks of two processes are never compared. A holder counts from the moment *before* it sent the
last write that succeeded, and stops ``deadline_s`` later. A candidate counts from the moment
*after* it first read that write, and takes over ``lease_s`` later, by compare-and-swap. So at
most one process sends, whatever is delayed or lost, unless one clock runs faster than another
by the ratio of the two, five thirds. Sidecars reject by its epoch what a leader still sends
after it was frozen.

Moments are in seconds of the candidate's own monotonic clock.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class LeaseTimings:
    """The timing of the election, in seconds."""

    lease_s: float = 10.0
    """How long a record must stay the same before its holder counts as gone."""
    renew_s: float = 2.0
    """How often a holder renews."""
    deadline_s: float = 6.0
    """How long after its last renewal a holder may send."""
    look_s: float = 1.0
    """How often the other candidates read the Lease."""
    retry_s: float = 0.5
    """How long a candidate waits after a failed call."""


PACE = LeaseTimings()


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """A Lease as it was read; records of one version are equal."""

    version: str
    """The object's resourceVersion."""
    holder: str
    """Empty after a release."""
    lease_s: float = PACE.lease_s
    """The Lease's leaseDurationSeconds."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What one process knows of the election."""

    me: str
    record: LeaseRecord | None = None
    """The Lease that was read last; None if there was none."""
    is_fresh: bool = False
    """Whether ``record`` is usable: not before the first read, nor after a failed call."""
    since: float = 0.0
    """When ``record`` was first read like this."""
    was_held: bool = False
    """Whether a deleted Lease had another holder when it was read last."""
    looked_at: float = 0.0
    not_before: float = float("-inf")
    """When the next call may be made."""
    renewed_at: float | None = None
    """When the last successful write was sent; None if the candidate does not lead."""

    def saw(self, record: LeaseRecord | None, now: float) -> "Candidate":
        """Return the candidate after it read the Lease; ``now`` is the time of the reply."""
        is_same = record == self.record and (self.is_fresh or record is not None)
        return replace(
            self,
            record=record,
            is_fresh=True,
            since=self.since if is_same else now,
            was_held=record is None and (self.was_held or self.is_held_by_another),
            looked_at=now,
        )

    def wrote(self, record: LeaseRecord, sent_at: float, now: float) -> "Candidate":
        """Return the candidate after its own write succeeded."""
        return replace(self.saw(record, now), renewed_at=sent_at)

    def failed(self, now: float, rest_s: float = PACE.retry_s) -> "Candidate":
        """Return the candidate after a failed call: it must rest, then read the Lease again."""
        return replace(self, is_fresh=False, not_before=now + rest_s)

    def resigned(self) -> "Candidate":
        """Return the candidate without leadership."""
        return replace(self, renewed_at=None)

    @property
    def is_held_by_another(self) -> bool:
        """Whether another process held the Lease when it was read last."""
        return self.record is not None and self.record.holder not in {"", self.me}

    def free_at(self, pace: LeaseTimings) -> float:
        """Return when the candidate may take the Lease that it read."""
        if self.record is None:
            return self.since + pace.lease_s if self.was_held else self.since
        if not self.is_held_by_another:
            return self.since
        return self.since + max(pace.lease_s, self.record.lease_s)


@dataclass(frozen=True, slots=True)
class ReadLease:
    """Read the Lease."""


@dataclass(frozen=True, slots=True)
class WriteLease:
    """Write the Lease with the own identity, over exactly the record that was read."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing until a moment."""

    until: float


@dataclass(frozen=True, slots=True)
class Resign:
    """Stop leading: send nothing from now on."""


ElectionStep = ReadLease | WriteLease | Wait | Resign


def may_send_until(sent_at: float, pace: LeaseTimings = PACE) -> float:
    """Return until when a successful write, sent at ``sent_at``, allows to send."""
    return sent_at + pace.deadline_s


def decide(seen: Candidate, now: float, pace: LeaseTimings = PACE) -> ElectionStep:
    """Return the next step of a candidate."""
    if seen.renewed_at is not None:
        return _leading(seen, seen.renewed_at, now, pace)
    if now < seen.not_before:
        return Wait(seen.not_before)
    if not seen.is_fresh:
        return ReadLease()
    free_at = seen.free_at(pace)
    if now >= free_at:
        return WriteLease()
    look_at = seen.looked_at + pace.look_s
    return ReadLease() if now >= look_at else Wait(min(look_at, free_at))


def _leading(seen: Candidate, renewed_at: float, now: float, pace: LeaseTimings) -> ElectionStep:
    deadline = may_send_until(renewed_at, pace)
    is_anothers = seen.record is not None and seen.record.holder != seen.me
    if now >= deadline or (seen.is_fresh and is_anothers):
        return Resign()
    if now < seen.not_before:
        return Wait(min(seen.not_before, deadline))
    if not seen.is_fresh:
        return ReadLease()
    due = renewed_at + pace.renew_s
    return WriteLease() if now >= due else Wait(due)
