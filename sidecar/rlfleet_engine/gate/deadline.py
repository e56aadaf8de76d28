"""The deadline after which the gate ends a change without the sidecar; stored in the gate's file.

Without it, vLLM and its requests stay paused while the sidecar is down, and a kubelet restarts a
crashing container only after minutes. A running sidecar renews the deadline. Between reload and
proof the fallback must never be open, and a deadline must take effect once, in one process.
"""

import mmap
import struct
import time
from collections.abc import Callable
from enum import IntEnum
from typing import Final

_FIELDS: Final = struct.Struct("<dIBB")
BYTES: Final = _FIELDS.size
"""Moment by the monotonic clock, which all processes of a machine share; number of changes of
the deadline; fallback; whether it took effect."""


class OnExpiry(IntEnum):
    """The fallback when the deadline has passed."""

    NOTHING = 0
    """No deadline is set."""
    OPEN = 1
    """Open the gate: the engine holds the last proved version."""
    REFUSE = 2
    """Reject requests: the engine's weights are not proved."""


class Deadline:
    """The deadline of one gate; change it only with the gate's lock."""

    def __init__(
        self, shared: mmap.mmap, at: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._map = shared
        self._at = at
        self._clock = clock

    @property
    def rest_s(self) -> float | None:
        """Seconds left, 0 once it has passed; None without a deadline."""
        moment, _, way, _ = self._read()
        return None if way == OnExpiry.NOTHING else max(0.0, moment - self._clock())

    @property
    def is_expired(self) -> bool:
        """Whether the fallback took effect and no command has moved the gate since."""
        return self._read()[3] == 1

    @property
    def turn(self) -> int:
        """A number that changes when a deadline is set, ends or takes effect, not at a renewal."""
        return self._read()[1]

    def set(self, ttl_s: float, way: OnExpiry) -> None:
        """Set a new deadline."""
        self._write(self._clock() + ttl_s, self.turn + 1, way, is_expired=False)

    def end(self) -> None:
        """Remove the deadline."""
        self._write(0.0, self.turn + 1, OnExpiry.NOTHING, is_expired=False)

    def renew(self, ttl_s: float | None, way: OnExpiry | None = None) -> None:
        """Extend the deadline and change its fallback, if there is one."""
        moment, turn, before, _ = self._read()
        if before != OnExpiry.NOTHING:
            moment = moment if ttl_s is None else self._clock() + ttl_s
            self._write(moment, turn, OnExpiry(before) if way is None else way, is_expired=False)

    def take(self) -> OnExpiry:
        """Return the fallback that is due and mark it as done, so that only one caller gets it."""
        if self.rest_s != 0:
            return OnExpiry.NOTHING
        _, turn, way, _ = self._read()
        self._write(0.0, turn + 1, OnExpiry.NOTHING, is_expired=True)
        return OnExpiry(way)

    def _read(self) -> tuple[float, int, int, int]:
        moment, turn, way, is_expired = _FIELDS.unpack_from(self._map, self._at)
        return moment, turn, way, is_expired

    def _write(self, moment: float, turn: int, way: OnExpiry, *, is_expired: bool) -> None:
        _FIELDS.pack_into(self._map, self._at, moment, turn % 2**32, way, is_expired)
