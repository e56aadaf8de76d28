"""When the gate ends a change whose sidecar is silent, and how: kept in the gate's file.

vLLM alone stays paused for ever, and so do its requests if the sidecar that paused it is gone:
a kubelet restarts a container that died often only after minutes. The sidecar renews the
deadline while it lives. It must stay true that the fallback never is open from before a reload
to the proof, and that a deadline has one effect, in one process.
"""

import mmap
import struct
import time
from collections.abc import Callable
from enum import IntEnum
from typing import Final

_FIELDS: Final = struct.Struct("<dIBB")
BYTES: Final = _FIELDS.size
"""The moment by the monotonic clock, which all processes of a machine share; how often the
deadline was set or ended; the fallback; whether it was done."""


class Way(IntEnum):
    """What is done when the deadline has passed."""

    NOTHING = 0
    """There is no deadline."""
    OPEN = 1
    """Run on with what was proved last."""
    REFUSE = 2
    """Turn requests away: what the engine holds is not proved."""


class Deadline:
    """Of one gate. To be changed within the gate's lock alone."""

    def __init__(
        self, shared: mmap.mmap, at: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._map = shared
        self._at = at
        self._clock = clock

    @property
    def rest_s(self) -> float | None:
        """Seconds that are left, 0 if it has passed; None if there is none."""
        moment, _, way, _ = self._read()
        return None if way == Way.NOTHING else max(0.0, moment - self._clock())

    @property
    def is_expired(self) -> bool:
        """Whether the fallback was done, and nothing has moved the gate since."""
        return self._read()[3] == 1

    @property
    def turn(self) -> int:
        """Changes whenever a deadline is set, ended or done; not when it is renewed."""
        return self._read()[1]

    def set(self, ttl_s: float, way: Way) -> None:
        """Begin a new one."""
        self._write(self._clock() + ttl_s, self.turn + 1, way, is_expired=False)

    def end(self) -> None:
        """Have none."""
        self._write(0.0, self.turn + 1, Way.NOTHING, is_expired=False)

    def renew(self, ttl_s: float | None, way: Way | None = None) -> None:
        """Put off one that there is, and change its fallback if another is named."""
        moment, turn, before, _ = self._read()
        if before != Way.NOTHING:
            moment = moment if ttl_s is None else self._clock() + ttl_s
            self._write(moment, turn, Way(before) if way is None else way, is_expired=False)

    def take(self) -> Way:
        """Tell what is to be done now, once: from here on it counts as done."""
        if self.rest_s != 0:
            return Way.NOTHING
        _, turn, way, _ = self._read()
        self._write(0.0, turn + 1, Way.NOTHING, is_expired=True)
        return Way(way)

    def _read(self) -> tuple[float, int, int, int]:
        moment, turn, way, is_expired = _FIELDS.unpack_from(self._map, self._at)
        return moment, turn, way, is_expired

    def _write(self, moment: float, turn: int, way: Way, *, is_expired: bool) -> None:
        _FIELDS.pack_into(self._map, self._at, moment, turn % 2**32, way, is_expired)
