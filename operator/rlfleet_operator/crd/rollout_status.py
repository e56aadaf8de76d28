"""The rollouts in a fleet's status: the newest, and those before it."""

from pydantic import Field

from rlfleet_operator.crd.field_types import Model, Moment, epoch_of


class Spread(Model):
    """A duration on the workers of a rollout, in milliseconds."""

    min_ms: int
    """Fastest worker."""
    median_ms: int
    """Median of the workers."""
    max_ms: int
    """Slowest worker."""


class RolloutTimings(Model):
    """Durations of a rollout's steps; `window` is gate closed to gate open."""

    prepare: Spread | None = None
    pause: Spread | None = None
    flush: Spread | None = None
    reload: Spread | None = None
    verify: Spread | None = None
    resume: Spread | None = None
    window: Spread | None = None


_VARYING = {"bytes_per_second", "seconds_left"}


class CopyProgress(Model):
    """How far the workers' copies of a version are, in steps of 10% to save writes."""

    percent: int
    """Share of the bytes that is copied and checked."""
    total_bytes: int = Field(description="Bytes of the copies under way on all these workers.")
    bytes_per_second: int | None = Field(
        default=None, description="Rate of all copies together, at the first sight of the step."
    )
    seconds_left: int | None = Field(
        default=None, description="Time until the last copy ends, at the first sight of the step."
    )
    workers: int
    """Number of workers that copy."""

    @property
    def is_rated(self) -> bool:
        """Whether the rate is known."""
        return self.bytes_per_second is not None

    def is_step_of(self, other: "CopyProgress") -> bool:
        """Return whether it differs from another at most in rate and time left."""
        mine, theirs = (one.model_dump(exclude=_VARYING) for one in (self, other))
        return mine == theirs


SETTLE_S = 3.0
"""Seconds for which a version must be the newest: twenty quick patches cost two changes."""


class RolloutStatus(Model):
    """The newest rollout, recorded before its first side effect."""

    id: int = Field(description="Number of the rollout: changes to A, B and A are three rollouts.")
    reason: str = Field(
        default="Spec",
        description="Spec (weightVersion was changed), Trainer (through the fleet API), Follow"
        " (a newer version in the store),"
        " Restart (restartId was changed) or Rollback.",
    )
    asked: str = Field(
        default="", description="Requested version; differs from `to` only in a rollback."
    )
    from_version: str = Field(default="", alias="from")
    """Version that was served when the rollout began; empty if none was."""
    to: str
    """Version that the workers change to."""
    kept: str = ""
    """Version that most workers below rollout.partition serve; empty without any."""
    phase: str = Field(
        description="Waiting (for pods), Preparing, Pausing, Flushing, Reloading, Verifying,"
        " Resuming, Updating (between two batches), Paused, CanaryHold, Partitioned, Refused,"
        " Completed, RolledBack, Failed, Held or Superseded (by another version, or by none)."
    )
    message: str = Field(default="", max_length=1024)
    """First rejection or failure of `to` on a worker, or the reason of the rollback."""
    started_at: Moment
    """When it was recorded."""
    not_before: Moment | None = Field(
        default=None,
        description="Serving workers do not change before this time. Set when the rollout quickly"
        " followed another, because yet another may follow.",
    )
    finished_at: str | None = None
    """When it ended."""
    seconds: float | None = Field(default=None, description="Duration from start to end.")
    held_since: Moment | None = None
    """When the current hold began: rollout.paused, canaries, partition, or no workers."""
    held_seconds: int = 0
    """Seconds of earlier holds; they do not count for the progress deadline."""
    canary_since: Moment | None = None
    """Time since which its canaries serve without a break."""
    replicas: int | None = None
    """The highest spec.replicas since its start; 0 if it began without a worker."""
    withdrawn: bool = False
    """Whether its version was no longer requested: requested again, it is another rollout."""
    restart_id: str = ""
    """The rollout.restartId of its start."""
    run_id: str = ""
    """The weights.runId of `asked`."""
    step: int | None = None
    """The weights.step of `asked`."""
    timings: RolloutTimings | None = None
    copies: CopyProgress | None = Field(
        default=None, description="Copies of `to` under way; absent while no worker copies."
    )
    prepared_bytes: int | None = Field(
        default=None, description="Bytes that each worker read; updated together with `timings`."
    )

    @property
    def started_epoch(self) -> float:
        """``started_at`` in seconds since the epoch."""
        return epoch_of(self.started_at)

    @property
    def canary_epoch(self) -> float | None:
        """``canary_since`` in seconds since the epoch."""
        return epoch_of(self.canary_since) if self.canary_since else None

    def settles_in_s(self, moment: float, asked_since: float) -> float:
        """Return for how many seconds serving workers must not change yet; 0 after a clock step."""
        if self.not_before is None:
            return 0.0
        ends = (epoch_of(self.not_before), asked_since + SETTLE_S)
        return max((left for end in ends if 0.0 < (left := end - moment) <= SETTLE_S), default=0.0)

    def spent_s(self, moment: float) -> float:
        """Return the seconds from the start until ``moment``, on hold or not."""
        return max(0.0, moment - self.started_epoch)

    def held_s(self, moment: float) -> float:
        """Return the seconds on hold until ``moment``."""
        running = moment - epoch_of(self.held_since) if self.held_since else 0.0
        return self.held_seconds + max(0.0, running)


class PastRollout(Model):
    """A rollout that has ended, or was superseded by the next."""

    id: int
    """Number of the rollout."""
    reason: str = "Spec"
    """Spec, Trainer, Follow, Restart or Rollback."""
    from_version: str = Field(default="", alias="from")
    """Version that was served when it began."""
    to: str
    """Version that the workers changed to."""
    result: str
    """Completed, RolledBack, Failed, Held or Superseded."""
    started_at: str
    """When it began."""
    seconds: float
    """Duration from start to end."""
    window_ms: int | None = Field(
        default=None, description="Median pause window of its workers, in milliseconds."
    )
    message: str = Field(default="", max_length=256)
    """Why it did not complete."""
    run_id: str = ""
    """The weights.runId of its version."""
    step: int | None = None
    """The weights.step of its version."""
    prepared_bytes: int | None = Field(default=None, description="Bytes that each worker read.")
