"""When a trainer's pause of a fleet ends, by the steady clock. Does no I/O.

Status names the end by the wall clock, for any process and for people. The driver measures what is
left of it from when it first reads it, and writes the end again when the wall clock was set.

It must stay true that a wall clock that is set neither lengthens nor shortens a pause, and that a
pause of which a new driver reads ends after its time to live at the latest.
"""

from dataclasses import replace

from rlfleet_operator.clock import Wall
from rlfleet_operator.core.model.world import Fleet, time_of

_ROUNDED_S = 1.0
"""Times in status are whole seconds."""


class PauseEnd:
    """Keeps the end of one fleet's pause."""

    def __init__(self, wall: Wall) -> None:
        """Know of no pause; measure by this clock."""
        self._wall = wall
        self._read: str | None = None
        self._at = 0.0
        """Of the steady clock."""

    def dated(self, fleet: Fleet) -> Fleet:
        """Return the fleet with the end of its pause as the wall clock of now has it."""
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
