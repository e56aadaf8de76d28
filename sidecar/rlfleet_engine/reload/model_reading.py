"""Reads a rank's memory after a reload, on a CPU while the engine works.

The gate opens on trial when the weights are loaded; replies wait for the proof, which waits for
this. It must stay true that the next load begins after the end of the reading.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

from rlfleet_contract.engine.rank_report import ReadBack
from rlfleet_engine.reload.checked_file import unbind
from rlfleet_engine.reload.read_back import Memory, RankRecord, reloaded, stored_plainly

_NICE = 5
"""A third of a busy core: the gate opens first, and replies wait for this."""


class ModelReading:
    """The memory after one reload; to read it begins at once."""

    def __init__(
        self,
        before: RankRecord,
        loaded: RankRecord,
        read: Callable[[], Memory | None],
        moved: frozenset[str],
        *,
        is_beside: bool,
    ) -> None:
        """Begin; ``loaded`` is the record without memory, ``moved`` are those with random values.

        ``is_beside``: read in a thread, else before this returns.
        """
        self._before, self._loaded, self._moved = before, loaded, moved
        self._memory: Future[Memory | None] = Future()
        if is_beside:
            pool = ThreadPoolExecutor(1, "rlfleet-read", _give_way)
            self._memory = pool.submit(read)
            pool.shutdown(wait=False)
        else:
            self._memory.set_result(read())

    def record(self) -> RankRecord:
        """Wait, and return the record with memory."""
        return replace(self._loaded, memory=self._memory.result())

    def report(self) -> ReadBack | None:
        """Wait, and return the comparison; None if memory cannot be read."""
        return reloaded(self._before, self.record())

    def plain(self) -> frozenset[str]:
        """Wait, and return the parameters that are shown to be stored as their tensors are."""
        return stored_plainly(self.record(), self._moved)


def _give_way() -> None:
    """Have the calling thread, and those that it starts, use every core after the engine's work."""
    unbind()
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
