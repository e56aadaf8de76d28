"""When a fleet whose driver failed by a defect of ours gets the next driver.

One fleet's defect stops that fleet alone, and a driver that fails at once costs little.
"""

from dataclasses import dataclass

FIRST_S, LAST_S = 5.0, 300.0
WELL_S = 300.0
"""A driver that ran for so long ran well: if it fails, that is a first time again."""


@dataclass(frozen=True, slots=True)
class Setback:
    """The last failure of a fleet's driver."""

    pause_s: float
    over_at: float
    """When the fleet gets its next driver."""


def after(before: Setback | None, now: float) -> Setback:
    """Return the setback of a failure now: its pause is twice the one before."""
    pause_s = FIRST_S
    if before is not None and now - before.over_at < WELL_S:
        pause_s = min(LAST_S, 2 * before.pause_s)
    return Setback(pause_s, now + pause_s)
