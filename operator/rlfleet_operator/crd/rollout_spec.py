"""How weights change and how old they may be: spec.rollout and spec.staleness as models."""

from enum import StrEnum
from typing import Literal

from pydantic import ConfigDict, Field

from rlfleet_contract.worker.commands import KVCache, PauseMode
from rlfleet_operator.crd.field_types import IntOrPercent, Model, Share, VersionName, rules


class TimeoutsSpec(Model):
    """How long one worker may take for each step of a change, in seconds."""

    prepare_seconds: int = Field(default=900, ge=1, le=86400)
    """Finding and checking the version; the engine serves meanwhile."""
    pause_seconds: int = Field(default=60, ge=1, le=86400)
    """Closing the gate and pausing the engine; in mode Wait also the requests in flight."""
    flush_seconds: int = Field(default=30, ge=1, le=86400)
    """Emptying the KV and prefix cache."""
    reload_seconds: int = Field(default=600, ge=1, le=86400)
    """Installing the weights in place."""
    verify_seconds: int = Field(default=60, ge=1, le=86400)
    """The probe behind the closed gate."""
    resume_seconds: int = Field(default=30, ge=1, le=86400)
    """Opening the gate."""


class Strategy(StrEnum):
    """In which order workers change."""

    ROLLING = "Rolling"
    BARRIER = "Barrier"
    CANARY = "Canary"


class Promote(StrEnum):
    """Who lets a rollout go on after its canaries."""

    AUTO = "Auto"
    MANUAL = "Manual"


class OnFailure(StrEnum):
    """What becomes of a rollout whose version fails."""

    QUARANTINE = "Quarantine"
    ROLLBACK = "Rollback"
    HOLD = "Hold"


class CanarySpec(Model):
    """The workers that change first."""

    count: IntOrPercent = Field(
        default=1,
        description="How many workers change first, a number or a percentage (rounded down, at"
        " least one); those of the lowest ordinals.",
    )
    hold_seconds: int = Field(
        default=0,
        ge=0,
        le=604800,
        description="How long the canaries serve before the others follow.",
    )
    promote: Promote = Field(
        default=Promote.AUTO,
        description="Auto goes on after holdSeconds; Manual waits until promotedVersion names the"
        " version.",
    )
    promoted_version: VersionName | None = Field(
        default=None, description="With promote Manual: the version that may go to all workers."
    )


class RolloutSpec(Model):
    """How a new weightVersion reaches the workers."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "!has(self.canary) || (has(self.strategy) && self.strategy == 'Canary')",
                "rollout.canary is for strategy Canary",
            ),
            (
                (
                    "!has(self.strategy) || self.strategy != 'Barrier' || !has(self.partition)"
                    " || (type(self.partition) == int ? self.partition == 0"
                    " : self.partition == '0%')"
                ),
                "rollout.partition cannot be had with strategy Barrier, which changes all at once",
            ),
        )
    )

    strategy: Strategy = Field(
        default=Strategy.ROLLING,
        description="Rolling: batches of at most maxUnavailable workers. Barrier: all pause, all"
        " reload and verify, all resume, so that no two versions are served at once. Canary: some"
        " workers first (rollout.canary), then the others as in Rolling.",
    )
    max_unavailable: IntOrPercent = Field(
        default="25%",
        description="How many workers may be out at once, a number or a percentage"
        " (rounded down, at least one). Workers that are broken already are not counted."
        " Barrier does not heed it.",
    )
    partition: Share = Field(
        default=0,
        description="How many workers keep the version they have, a number or a percentage"
        " (rounded down); those of the lowest ordinals.",
    )
    canary: CanarySpec | None = Field(default=None, description="For strategy Canary.")
    paused: bool = Field(
        default=False,
        description="No further batch begins while this is true. One that has begun is ended: no"
        " engine stays paused.",
    )
    on_failure: OnFailure = Field(
        default=OnFailure.QUARANTINE,
        description="A worker that fails its reload or proof is out of service in any case."
        " Quarantine goes on with the others until maxFailed is passed, then stops. Rollback takes"
        " every worker back to the version before. Hold stops, and everybody stays as they are."
        " A version that failed and holds on no worker always ends the rollout in this way.",
    )
    max_failed: Share | None = Field(
        default=None,
        description="How many workers may fail before the rollout stops, a number or a percentage"
        " (rounded down). The default is maxUnavailable with Quarantine, else 0.",
    )
    restart_id: str = Field(
        default="",
        max_length=128,
        description="Any new value tries weightVersion anew, as a rollout of its own: the way to"
        " repeat one that failed or was rolled back.",
    )
    allow_rewind: bool = Field(
        default=False,
        description="Lets weights.step be lower than before within one weights.runId.",
    )
    dry_run: bool = Field(
        default=False,
        description="A changed weightVersion does nothing but show its plan in status.preview.",
    )
    pause_mode: PauseMode = Field(
        default=PauseMode.KEEP,
        description="What becomes of requests in flight: Keep freezes them and goes on with the"
        " new weights, Wait lets them end first, Abort ends them at once, marked.",
    )
    kv_cache: KVCache = Field(
        default=KVCache.RESET,
        description="Reset empties the KV and prefix cache with the change; Preserve keeps it.",
    )
    timeouts: TimeoutsSpec = Field(default_factory=TimeoutsSpec, json_schema_extra={"default": {}})
    progress_deadline_seconds: int = Field(
        default=1800,
        ge=1,
        le=604800,
        description="Without an end after this time the rollout is reported as Stalled. The time"
        " for which it was held (paused, or a canary's hold) does not count.",
    )


class StalenessSpec(Model):
    """How old the weights of a worker that takes traffic may be."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "!has(self.minVersion) || self.minVersion.matches('[0-9]$')",
                (
                    "staleness.minVersion must end with a number, such as step-100: versions are"
                    " compared with it by the numbers at the ends of their names"
                ),
            ),
        )
    )

    max_skew: int | None = Field(
        default=None,
        ge=0,
        description="How many steps a worker may be behind the newest one that takes traffic."
        " Only versions of the same run are compared, and nobody is behind a version that is newer"
        " than the one that the fleet goes to.",
    )
    min_version: VersionName | None = Field(
        default=None,
        description="The oldest version that may take traffic. Compared by the numbers at the ends"
        " of the names, whatever weights.step says; a name without one is not too old.",
    )
    on_violation: Literal["Warn", "Unready"] = Field(
        default="Warn",
        description="Warn tells it in the condition Degraded; Unready takes such workers out of"
        " traffic until they have caught up.",
    )
