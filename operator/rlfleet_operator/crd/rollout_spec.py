"""How weights change and how old they may be: spec.rollout and spec.staleness as models."""

from enum import StrEnum
from typing import Literal

from pydantic import ConfigDict, Field

from rlfleet_contract.worker.commands import KVCache, PauseMode
from rlfleet_operator.crd.field_types import IntOrPercent, Model, Share, VersionName, rules


class TimeoutsSpec(Model):
    """Timeouts of each step of a worker's change, in seconds."""

    prepare_seconds: int = Field(default=900, ge=1, le=86400)
    """Find, check and copy the version while the engine serves."""
    pause_seconds: int = Field(default=60, ge=1, le=86400)
    """Close the gate and pause the engine; in mode Wait also finish the requests in flight."""
    flush_seconds: int = Field(default=30, ge=1, le=86400)
    """Empty the KV and prefix cache."""
    reload_seconds: int = Field(default=600, ge=1, le=86400)
    """Reload the weights in place."""
    verify_seconds: int = Field(default=60, ge=1, le=86400)
    """Run the probe behind the closed gate."""
    resume_seconds: int = Field(default=30, ge=1, le=86400)
    """Open the gate."""


class Strategy(StrEnum):
    """The order in which workers change."""

    ROLLING = "Rolling"
    BARRIER = "Barrier"
    CANARY = "Canary"


class Promote(StrEnum):
    """What lets a rollout continue after its canaries: time, or a field of the spec."""

    AUTO = "Auto"
    MANUAL = "Manual"


class OnFailure(StrEnum):
    """What the operator does with a rollout whose version fails."""

    QUARANTINE = "Quarantine"
    ROLLBACK = "Rollback"
    HOLD = "Hold"


class CanarySpec(Model):
    """The workers that change first."""

    count: IntOrPercent = Field(
        default=1,
        description="Workers that change first, a number or a percentage (rounded down, at least"
        " 1): the lowest ordinals.",
    )
    hold_seconds: int = Field(
        default=0,
        ge=0,
        le=604800,
        description="Seconds for which the canaries serve before the other workers change.",
    )
    promote: Promote = Field(
        default=Promote.AUTO,
        description="Auto continues after holdSeconds; Manual also waits until promotedVersion"
        " names the version.",
    )
    promoted_version: VersionName | None = Field(
        default=None, description="For promote Manual: the version that all workers may load."
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
                "rollout.partition must be 0 for strategy Barrier, which changes all workers",
            ),
        )
    )

    strategy: Strategy = Field(
        default=Strategy.ROLLING,
        description="Rolling changes batches of at most maxUnavailable workers. Barrier pauses all"
        " workers, reloads and verifies all, then resumes all: two versions are never served at"
        " once. Canary changes some workers first (rollout.canary), then the others like Rolling.",
    )
    max_unavailable: IntOrPercent = Field(
        default="25%",
        description="Workers that may be out of service at once, a number or a percentage"
        " (rounded down, at least 1). Workers that are already broken, or whose pods are lost in"
        " their change, do not count. Barrier ignores it.",
    )
    partition: Share = Field(
        default=0,
        description="Workers that keep their version, a number or a percentage (rounded down): the"
        " lowest ordinals.",
    )
    canary: CanarySpec | None = Field(default=None, description="Settings of strategy Canary.")
    paused: bool = Field(
        default=False,
        description="While true, no further batch begins. A batch that has begun completes, so that"
        " no engine stays paused.",
    )
    on_failure: OnFailure = Field(
        default=OnFailure.QUARANTINE,
        description="What to do when workers fail their reload or proof; these are out of service"
        " in any case. Quarantine continues with the others, and stops after more than maxFailed"
        " failures. Rollback returns every worker to the previous version. Hold stops, and every"
        " worker keeps its version. A version that failed before any worker proved it always stops"
        " the rollout.",
    )
    max_failed: Share | None = Field(
        default=None,
        description="Workers that may fail before the rollout stops, a number or a percentage"
        " (rounded down). Default: maxUnavailable for Quarantine, else 0.",
    )
    restart_id: str = Field(
        default="",
        max_length=128,
        description="A new value starts another rollout of the same version, for example after one"
        " that failed or was rolled back.",
    )
    allow_rewind: bool = Field(
        default=False,
        description="Allow a lower weights.step than before within one weights.runId.",
    )
    dry_run: bool = Field(
        default=False,
        description="While true, a changed weightVersion only shows its plan in status.preview.",
    )
    pause_mode: PauseMode = Field(
        default=PauseMode.KEEP,
        description="How requests in flight are handled: Keep freezes them and continues with the"
        " new weights, Wait finishes them first, Abort ends them at once with a marker.",
    )
    kv_cache: KVCache = Field(
        default=KVCache.RESET,
        description="Reset empties the KV and prefix cache in each change; Preserve keeps it.",
    )
    timeouts: TimeoutsSpec = Field(default_factory=TimeoutsSpec, json_schema_extra={"default": {}})
    progress_deadline_seconds: int = Field(
        default=1800,
        ge=1,
        le=604800,
        description="Seconds after which a rollout that has not ended is reported as Stalled. Time"
        " on hold (rollout.paused, canaries) does not count.",
    )


class StalenessSpec(Model):
    """How old the weights of a worker that takes traffic may be."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "!has(self.minVersion) || self.minVersion.matches('[0-9]$')",
                (
                    "staleness.minVersion must end with a number, such as step-100: versions are"
                    " compared by the numbers at the ends of their names"
                ),
            ),
        )
    )

    max_skew: int | None = Field(
        default=None,
        ge=0,
        description="Steps that a worker may be behind the newest version that takes traffic. Only"
        " versions of the same run are compared; versions newer than the target do not count.",
    )
    min_version: VersionName | None = Field(
        default=None,
        description="Oldest version that may take traffic. Versions are compared by the numbers at"
        " the ends of their names, not by weights.step; a name without a number is never too old.",
    )
    on_violation: Literal["Warn", "Unready"] = Field(
        default="Warn",
        description="Warn sets the condition Degraded; Unready also takes such workers out of"
        " traffic until they have caught up.",
    )
