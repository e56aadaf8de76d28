"""How long the steps of a rollout took, as its status tells."""

from rlfleet_operator.crd.field_types import Model


class Spread(Model):
    """A time over the workers of a rollout, in milliseconds."""

    min_ms: int
    """Of the quickest worker."""
    median_ms: int
    """The median."""
    max_ms: int
    """Of the slowest worker."""


class RolloutTimings(Model):
    """How long the steps of a rollout took; `window` is gate closed to gate open."""

    prepare: Spread | None = None
    pause: Spread | None = None
    flush: Spread | None = None
    reload: Spread | None = None
    verify: Spread | None = None
    resume: Spread | None = None
    window: Spread | None = None
