"""How long the steps of a rollout took."""

from rlfleet_operator.crd.field_types import Model


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
