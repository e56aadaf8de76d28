"""When a fleet's pause ends, by the monotonic clock of this operator.

Status has a wall-clock time, and clocks differ: a pause must not last longer than its TTL here.
"""

from dataclasses import replace

from rlfleet_operator.clock import WallClock
from rlfleet_operator.core.model.world import Fleet, time_of

_ROUNDED_S = 1.0
"""Times in status are whole seconds."""


class PauseEnd:
    """The end of one fleet's pause, by the monotonic clock."""

    def __init__(self, wall: WallClock) -> None:
        """Start without a pause."""
        self._wall = wall
        self._read: str | None = None
        self._at = 0.0
        """A moment of the monotonic clock."""

    def dated(self, fleet: Fleet) -> Fleet:
        """Return the fleet with the end of its pause in current wall-clock time."""
        pause = fleet.status.trainer_pause
        if pause is None:
            self._read = None
            return fleet
        if pause.until != self._read:
            longest = self._wall.in_s(pause.ttl_seconds)
            self._read, self._at = pause.until, min(self._wall.to(pause.until_epoch), longest)
        at = self._wall.of(self._at)
        if abs(at - pause.until_epoch) <= _ROUNDED_S:
            return fleet
        known = pause.model_copy(update={"until": time_of(at)})
        status = fleet.status.model_copy(update={"trainer_pause": known})
        return replace(fleet, status=status)
