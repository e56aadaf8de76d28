"""The moments of a status, by the monotonic clock of this operator.

Status has wall-clock times. A clock that is set must not end a pause or a canary's hold early, nor
take a rollout for overdue. And clocks differ: a pause must not last longer than its TTL here.
"""

import math
from dataclasses import replace
from typing import Any

from rlfleet_operator.clock import WallClock
from rlfleet_operator.core.model.world import Fleet, time_of
from rlfleet_operator.core.rollout.rollout import ENDED
from rlfleet_operator.crd.field_types import epoch_of

_ROUNDED_S = 1.0
"""Times in status are whole seconds."""
_OF_ROLLOUT = ("started_at", "held_since", "canary_since")


class RecordedTimes:
    """The moments of one fleet's status."""

    def __init__(self, wall: WallClock) -> None:
        """Start without a status."""
        self._wall = wall
        self._read: dict[str, tuple[str, float]] = {}
        """What each field had when it was read first, and that moment of the monotonic clock."""

    def dated(self, fleet: Fleet) -> Fleet:
        """Return the fleet with its pause and its rollout in current wall-clock time."""
        pause, rollout, moved = fleet.status.trainer_pause, fleet.status.rollout, dict[str, Any]()
        if pause is None:
            self._read.pop("until", None)
        elif (until := self._now("until", pause.until, pause.ttl_seconds)) != pause.until:
            moved["trainer_pause"] = pause.model_copy(update={"until": until})
        if rollout is not None and rollout.phase not in ENDED:
            known = {name: at for name in _OF_ROLLOUT if (at := getattr(rollout, name))}
            found = {name: self._now(name, at) for name, at in known.items()}
            if found != known:
                moved["rollout"] = rollout.model_copy(update=found)
        return replace(fleet, status=fleet.status.model_copy(update=moved)) if moved else fleet

    def _now(self, field: str, text: str, longest_s: float = math.inf) -> str:
        """Return a field's moment as the wall clock has it now."""
        known, at = self._read.get(field, ("", 0.0))
        if known != text:
            at = min(self._wall.to(epoch_of(text)), self._wall.in_s(longest_s))
            self._read[field] = text, at
        now = self._wall.of(at)
        return text if abs(now - epoch_of(text)) <= _ROUNDED_S else time_of(now)
