"""Zeroed memory for a reload's parameters, made while the engine serves.

On a CPU the kernel zeroes each new page when it is first written: 0.25 s and more for each GiB,
which clients would wait for.
"""

import ctypes
from collections.abc import Callable, Sequence

from rlfleet_engine.reload.mapping import zeroed

SMALLEST = 1024 * 1024
"""Bytes of memory that is worth a mapping of its own; a process may have only some 65,000."""
_CHUNK = 16 * 1024 * 1024


class ZeroedMemory:
    """Blocks of zeros, each of which is given away once."""

    def __init__(self) -> None:
        self._free: dict[int, list[memoryview]] = {}
        self._made: list[memoryview] = []

    @property
    def nbytes(self) -> int:
        """The bytes of all blocks, given away or not."""
        return sum(len(block) for block in [*self._made])

    def make(self, sizes: Sequence[int], go_on: Callable[[], None]) -> None:
        """Make a block of each size; ``go_on`` raises when they are no longer wanted."""
        for nbytes in sizes:
            block = zeroed(nbytes)
            for begin in range(0, nbytes, _CHUNK):
                go_on()
                _touch(block, begin, min(_CHUNK, nbytes - begin))
            self._made.append(block)
            self._free.setdefault(nbytes, []).append(block)

    def take(self, nbytes: int) -> memoryview | None:
        """Return a block of exactly this size that was not given away; None without one.

        It is kept here too, so that clear() unmaps it in its own thread, and not a drop of it.
        """
        blocks = self._free.get(nbytes)
        return blocks.pop() if blocks else None

    def clear(self) -> None:
        """Let go of all blocks; those in use stay until their last user drops them."""
        self._free.clear()
        self._made.clear()


def _touch(block: memoryview, begin: int, nbytes: int) -> None:
    """Write zeros over zeros, without the interpreter's lock, so that the kernel adds the pages."""
    ctypes.memset(ctypes.addressof(ctypes.c_ubyte.from_buffer(block, begin)), 0, nbytes)
