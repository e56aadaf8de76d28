"""Versions in the store that are not needed: spec.weights.retention and status.retention."""

from pydantic import Field

from rlfleet_operator.crd.field_types import Model


class RetentionSpec(Model):
    """What becomes of versions that are no longer needed.

    Needed are those that a worker serves, goes to or may go back to, all deltas that lead to one
    of them, and all that are newer. Other fleets are not asked. status.retention lists the rest.
    """

    keep: int | None = Field(
        default=None,
        ge=1,
        le=10000,
        description="Delete them in the store, but for this number of the newest versions. Needs an"
        " s3:// or gs:// source whose credentials may delete. Default: nothing is deleted.",
    )


class RetentionStatus(Model):
    """Versions in the store that are not needed, as one worker sees them."""

    worker: str
    """The worker that looks, and deletes."""
    unneeded: list[str] = Field(default_factory=list)
    """The oldest of them, at most 16."""
    count: int = 0
    """Number of all."""
    deleted: int = 0
    """Number of versions that this worker has deleted since its sidecar's start."""
    message: str | None = None
    """Why the last look or deletion failed."""
