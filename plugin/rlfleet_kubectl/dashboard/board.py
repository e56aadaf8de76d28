"""The newest state of every fleet, for the streams that show them.

A stream asks for what is newer than it has shown: one that is slow gets fewer states, never a
queue of old ones.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from rlfleet_view.fleet import ObservedFleet

_GONE = 1000
"""So many deleted fleets are remembered for streams that are slow."""


def key_of(fleet: ObservedFleet) -> str:
    """Return how the page names a fleet."""
    return f"{fleet.namespace}/{fleet.name}"


@dataclass(frozen=True, slots=True)
class BoardNews:
    """What is newer than a stream has shown."""

    count: int
    """What to ask with the next time."""
    fleets: Sequence[ObservedFleet] = ()
    gone: Sequence[str] = ()
    problem: str | None = None
    """Why fleets cannot be watched, empty if they can again; None without news of it."""


@dataclass
class Board:
    """Fleets by key, each with the number of its last change."""

    _fleets: dict[str, ObservedFleet] = field(default_factory=dict)
    _at: dict[str, int] = field(default_factory=dict)
    """The number of the last change of each key, deleted ones included."""
    _problem: tuple[str, int] = ("", 0)
    _count: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def put(self, fleet: ObservedFleet) -> None:
        """Take a newer state of a fleet."""
        with self._changed:
            key = key_of(fleet)
            self._fleets[key] = fleet
            self._touch(key)

    def remove(self, key: str) -> None:
        """Take that a fleet is deleted."""
        with self._changed:
            if self._fleets.pop(key, None) is not None:
                self._touch(key)
                gone = [one for one in self._at if one not in self._fleets]
                for one in gone[:-_GONE]:
                    del self._at[one]

    def replace(self, fleets: Sequence[ObservedFleet]) -> None:
        """Take all fleets that there are."""
        for key in set(self._fleets) - {key_of(fleet) for fleet in fleets}:
            self.remove(key)
        for fleet in fleets:
            known = self._fleets.get(key_of(fleet))
            if known is None or known.raw != fleet.raw:
                self.put(fleet)

    def report(self, problem: str) -> None:
        """Take why fleets cannot be watched; empty if they can."""
        with self._changed:
            if self._problem[0] != problem:
                self._count += 1
                self._problem = problem, self._count
                self._changed.notify_all()

    def get(self, key: str) -> ObservedFleet | None:
        """Return the newest state of a fleet; None if there is none."""
        return self._fleets.get(key)

    def since(self, count: int, within_s: float) -> BoardNews:
        """Return what changed after ``count``; wait for it at most ``within_s`` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._count > count, timeout=within_s)
            keys = [key for key, at in self._at.items() if at > count]
            problem, at = self._problem
            return BoardNews(
                self._count,
                tuple(self._fleets[key] for key in keys if key in self._fleets),
                tuple(key for key in keys if key not in self._fleets),
                problem if at > count else None,
            )

    def _touch(self, key: str) -> None:
        self._count += 1
        # At the end: the oldest change comes first.
        self._at.pop(key, None)
        self._at[key] = self._count
        self._changed.notify_all()
