"""Who leads, as one candidate decides it from a Lease and its own clock alone.

Clocks are never compared. A holder counts from the moment *before* it sent the
write that last succeeded, and stops ``deadline_s`` later. Whoever wants to
follow counts from the moment *after* it first saw that write, and takes over
``lease_s`` later, by compare-and-swap on what it saw. So at most one may send,
however long anybody sleeps and whatever is lost, as long as no clock runs
faster than another by the ratio of the two: five thirds. What a leader that
was frozen between its look at the clock and its send still gets out, the
epoch stops at the sidecar.

Moments are in seconds of the candidate's own monotonic clock.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast things go, in seconds."""

    lease_s: float = 10.0
    """How long a record must stay the same before its holder counts as gone."""
    renew_s: float = 2.0
    """How often a holder renews."""
    deadline_s: float = 6.0
    """How long after its last renewal a holder may send."""
    look_s: float = 1.0
    """How often the others look."""
    retry_s: float = 0.5
    """How long a candidate waits after a call that failed."""


PACE = Pace()


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """A Lease as it was read; two of one version are the same."""

    version: str
    """The object's resourceVersion."""
    holder: str
    """Empty when it was given back."""
    lease_s: float = PACE.lease_s
    """How long its holder claims it."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What one process knows of the election."""

    me: str
    record: LeaseRecord | None = None
    """As read last; None when there was no Lease."""
    is_fresh: bool = False
    """Whether ``record`` may be decided on: not before the first look, nor after a failed call."""
    since: float = 0.0
    """When ``record`` was first seen like this."""
    was_held: bool = False
    """Whether the Lease that is gone had another holder when it was seen last."""
    looked_at: float = 0.0
    not_before: float = float("-inf")
    """When the next call may be made."""
    renewed_at: float | None = None
    """When the write was sent that took or renewed the Lease last; None: it does not lead."""

    def saw(self, record: LeaseRecord | None, now: float) -> "Candidate":
        """Take note of the Lease that was read, after the reply came."""
        is_same = record == self.record and (self.is_fresh or record is not None)
        return replace(
            self,
            record=record,
            is_fresh=True,
            since=self.since if is_same else now,
            was_held=record is None and (self.was_held or self._is_held_by_another()),
            looked_at=now,
        )

    def wrote(self, record: LeaseRecord, sent_at: float, now: float) -> "Candidate":
        """Take note that its own write succeeded."""
        return replace(self.saw(record, now), renewed_at=sent_at)

    def failed(self, now: float, pace: Pace = PACE) -> "Candidate":
        """Take note of a call that failed: what became of it has to be looked at."""
        return replace(self, is_fresh=False, not_before=now + pace.retry_s)

    def resigned(self) -> "Candidate":
        """Lead no more."""
        return replace(self, renewed_at=None)

    def _is_held_by_another(self) -> bool:
        return self.record is not None and self.record.holder not in {"", self.me}

    def free_at(self, pace: Pace) -> float:
        """Return when it may take the Lease that it sees."""
        if self.record is None:
            return self.since + pace.lease_s if self.was_held else self.since
        if not self._is_held_by_another():
            return self.since
        return self.since + max(pace.lease_s, self.record.lease_s)


@dataclass(frozen=True, slots=True)
class Look:
    """Read the Lease."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Write the Lease in one's own name, over exactly the record that was seen."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing until then."""

    until: float


@dataclass(frozen=True, slots=True)
class Resign:
    """Lead no more: send nothing from now on."""


ElectionStep = Look | Hold | Wait | Resign


def may_send_until(sent_at: float, pace: Pace = PACE) -> float:
    """Return until when the write that was sent then and succeeded allows to send."""
    return sent_at + pace.deadline_s


def decide(seen: Candidate, now: float, pace: Pace = PACE) -> ElectionStep:
    """Return the next step of a candidate."""
    if seen.renewed_at is not None:
        return _leading(seen, seen.renewed_at, now, pace)
    if now < seen.not_before:
        return Wait(seen.not_before)
    if not seen.is_fresh:
        return Look()
    free_at = seen.free_at(pace)
    if now >= free_at:
        return Hold()
    look_at = seen.looked_at + pace.look_s
    return Look() if now >= look_at else Wait(min(look_at, free_at))


def _leading(seen: Candidate, renewed_at: float, now: float, pace: Pace) -> ElectionStep:
    deadline = may_send_until(renewed_at, pace)
    is_anothers = seen.record is not None and seen.record.holder != seen.me
    if now >= deadline or (seen.is_fresh and is_anothers):
        return Resign()
    if now < seen.not_before:
        return Wait(min(seen.not_before, deadline))
    if not seen.is_fresh:
        return Look()
    due = renewed_at + pace.renew_s
    return Hold() if now >= due else Wait(due)
