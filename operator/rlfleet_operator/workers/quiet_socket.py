"""A watch's socket, on which signs of life do not wake this process.

A thousand workers at rest give a hundred signs a second. Each costs 0.08 ms if it wakes the event
loop, which is most of what the operator does at rest. A sign has a few bytes and a report has
many. So the kernel wakes the process from ``LEAST`` bytes on, or when the connection ends, and a
look at how many bytes wait shows whether a sign has come.

A kernel that cannot do that wakes the process for each sign.
"""

import contextlib
import fcntl
import socket
import struct
import termios
from asyncio.trsock import TransportSocket

LEAST = 256
"""Bytes; a report has more, also the shortest."""


class QuietSocket:
    """Looks at one connection's socket and says from how many bytes on it is read."""

    def __init__(self, of: TransportSocket | None) -> None:
        """Without a socket nothing changes, and nothing arrives."""
        self._socket = of
        self._least = 1
        self._waiting = 0

    def wake_for(self, least: int) -> None:
        """Wake the process from so many bytes on."""
        if self._socket is not None and least != self._least:
            self._least = least
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)

    def has_more(self) -> bool:
        """Return whether another number of bytes waits than at the last look."""
        known, self._waiting = self._waiting, self._count()
        return self._waiting != known

    def _count(self) -> int:
        if self._socket is None or self._socket.fileno() < 0:
            return 0
        try:
            found = fcntl.ioctl(self._socket.fileno(), termios.FIONREAD, bytes(4))
        except OSError:
            return 0
        return int(struct.unpack("i", found)[0])
