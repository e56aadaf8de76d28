"""The gate: a flag and a version, shared by all API server processes of one boot.

A small file in memory holds the boot's identity, the flag, the engine's version, whether that is
proved, and each process' request counts. A file of an earlier boot must count as closed. A
process must write only its own slot, and a new version next to the old one before it counts.
Then a request costs a short read and two counters, and no lock.
"""

import asyncio
import fcntl
import mmap
import os
import struct
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from rlfleet_engine.gate.deadline import Deadline
from rlfleet_engine.processes import started

_MAGIC: Final = b"rlfgate4"
_BOOT_BYTES: Final = 64
_FLAG: Final = len(_MAGIC) + _BOOT_BYTES
_CLOSED: Final = 0
_OPEN: Final = 1
_REFUSING: Final = 2
_ADMITTING: Final = 3
_DRAINING: Final = _FLAG + 1
_COUNT: Final = struct.Struct("<I")
_CHANGES_AT: Final = 76
_TRIALS: Final = struct.Struct("<II")
"""The last proved change, and the last failed one."""
_TRIALS_AT: Final = 80
_ERA_AT: Final = 88
_UNSALTED: Final = 92
_DEADLINE_AT: Final = 96
_LOADS_AT: Final = 112
_VERSIONS_AT: Final = 128
_VERSION_BYTES: Final = 128
_SLOTS_AT: Final = _VERSIONS_AT + 2 * _VERSION_BYTES
_SLOT: Final = struct.Struct("<IIIQ")
"""Process id, waiting, in flight, start time of the process (because ids are reused)."""
_COUNTS: Final = struct.Struct("<II")
_COUNTS_IN_SLOT: Final = 4
_SLOTS: Final = 128
_SIZE: Final = _SLOTS_AT + _SLOTS * _SLOT.size
_OFFSETS: Final = range(_SLOTS_AT, _SIZE, _SLOT.size)
_POLL_S: Final = 0.005


class EngineVersion(NamedTuple):
    """The engine's version; cheap to read, because every request does."""

    version: bytes
    """The value for headers; empty before the sidecar has named a version."""
    change: int
    """The number of version changes in this boot: A, B, A are three."""


class ProofState(Enum):
    """Whether the weights that computed a reply are proved."""

    PROVED = "proved"
    ON_TRIAL = "on trial"
    """A part may come from weights whose proof is under way."""
    FAILED = "failed"
    """A part may come from weights whose proof failed."""


class Gate:
    """The gate in one process; closed until the sidecar opens it in this boot."""

    def __init__(self, path: Path, boot: str) -> None:
        self.boot = boot
        # Kept open: a command must not fail because a file cannot be opened (EMFILE).
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        weakref.finalize(self, os.close, self._file)
        self._map, self._slot = _attach(self._file, path, boot)
        self.deadline = Deadline(self._map, _DEADLINE_AT)
        self._holding = self._read(self._change)
        self._passage = _Passage(self)
        self._opening = _Poller(lambda: self._map[_FLAG] not in {_CLOSED, _ADMITTING})
        self._admission = _Poller(lambda: self._map[_FLAG] != _CLOSED)
        self._settling = _Poller(lambda: not self._is_on_trial)
        self.waiting = 0
        self.in_flight = 0

    @property
    def is_open(self) -> bool:
        """Whether requests pass."""
        return self._map[_FLAG] == _OPEN

    @property
    def is_refusing(self) -> bool:
        """Whether requests are rejected instead of waiting."""
        return self._map[_FLAG] == _REFUSING

    @property
    def is_admitting(self) -> bool:
        """Whether requests pass though the gate is not open: their replies wait for a proof."""
        return self._map[_FLAG] == _ADMITTING

    @property
    def holding(self) -> EngineVersion:
        """The engine's version, as the sidecar set it."""
        change = self._change
        if change != self._holding.change:
            self._holding = self._read(change)
        return self._holding

    @property
    def known(self) -> EngineVersion:
        """The engine's version if it is proved, else an empty one."""
        now = self.holding
        return (
            now
            if self.standing(now.change) is ProofState.PROVED
            else EngineVersion(b"", now.change)
        )

    def _read(self, change: int) -> EngineVersion:
        at = _version_at(change)
        return EngineVersion(self._map[at : at + _VERSION_BYTES].rstrip(b"\0"), change)

    def hold(self, version: str) -> None:
        """Set the engine's version for every process, as proved."""
        if self.holding.version != version.encode():
            self.begin_trial(version)
            self.end_trial(is_proved=True)

    def begin_trial(self, version: str) -> None:
        """Set the engine's version for every process, as not proved yet.

        The same version again is another change, because it is another reload. A trial that
        is still under way counts as failed.
        """
        self.fail_trial()
        change = self._change + 1
        at = _version_at(change)
        padded = version.encode().ljust(_VERSION_BYTES, b"\0")
        self._map[at : at + _VERSION_BYTES] = padded
        _COUNT.pack_into(self._map, _CHANGES_AT, change)

    def end_trial(self, *, is_proved: bool) -> None:
        """Record for every process whether the engine's version is proved.

        A trial that has failed stays so: its deadline has ended its answers already.
        """
        change = self._change
        proved, failed = _TRIALS.unpack_from(self._map, _TRIALS_AT)
        if is_proved and failed == change > 0:
            return
        ended = (change, failed) if is_proved else (proved, change)
        _TRIALS.pack_into(self._map, _TRIALS_AT, *ended)

    def standing(self, began: int) -> ProofState:
        """Return whether all weights since the change ``began`` are proved."""
        proved, failed = _TRIALS.unpack_from(self._map, _TRIALS_AT)
        if 0 < failed >= began:
            return ProofState.FAILED
        return ProofState.ON_TRIAL if self._change > proved else ProofState.PROVED

    @property
    def is_proved(self) -> bool:
        """Whether the engine's version is proved."""
        change = self._change
        return change > 0 and _TRIALS.unpack_from(self._map, _TRIALS_AT)[0] == change

    def fail_trial(self) -> None:
        """End a trial under way as failed."""
        if self._is_on_trial:
            self.end_trial(is_proved=False)

    async def settled(self, began: int) -> ProofState:
        """Wait for the end of a trial that a reply since ``began`` may come from."""
        while (standing := self.standing(began)) is ProofState.ON_TRIAL:
            await self._settling.wait()
        return standing

    @property
    def _change(self) -> int:
        """Only the count, because each event of each stream reads it."""
        change: int = _COUNT.unpack_from(self._map, _CHANGES_AT)[0]
        return change

    @property
    def _is_on_trial(self) -> bool:
        ended: int = max(_TRIALS.unpack_from(self._map, _TRIALS_AT))
        return self._change > ended

    @property
    def era(self) -> int:
        """Within an era, requests without a salt share the prefix cache; 0 before the first."""
        era: int = _COUNT.unpack_from(self._map, _ERA_AT)[0]
        return era

    def begin_era(self) -> None:
        """Separate requests without a salt from all earlier cache entries, in every process."""
        _COUNT.pack_into(self._map, _ERA_AT, self.era + 1)

    @property
    def has_unsalted(self) -> bool:
        """Whether a request passed in this boot whose cache entries have no salt."""
        return self._map[_UNSALTED] == 1

    def mark_unsalted(self) -> None:
        """Record such a request; from now on a change cannot keep the caches."""
        self._map[_UNSALTED] = 1

    @property
    def loads(self) -> int:
        """How many requests to replace weights this boot got."""
        loads: int = _COUNT.unpack_from(self._map, _LOADS_AT)[0]
        return loads

    def count_load(self) -> None:
        """Record such a request, before vLLM gets it."""
        _COUNT.pack_into(self._map, _LOADS_AT, self.loads + 1)

    def open(self) -> None:
        """Pass requests in every process."""
        self._map[_FLAG] = _OPEN

    def admit(self) -> None:
        """Pass requests during a trial; without one, leave the gate as it is."""
        if self._is_on_trial:
            self._map[_FLAG] = _ADMITTING

    def close(self) -> None:
        """Hold new requests in every process."""
        self._map[_FLAG] = _CLOSED

    def refuse(self) -> None:
        """Reject new and waiting requests in every process."""
        self._map[_FLAG] = _REFUSING

    def locked(self) -> AbstractContextManager[object]:
        """Lock the gate against changes by other processes."""
        return _locked(self._file)

    @property
    def is_draining(self) -> bool:
        """Whether the engine's container is ending."""
        return self._map[_DRAINING] == 1

    def drain(self) -> None:
        """Record that the engine's container is ending; the next boot resets it."""
        self._map[_DRAINING] = 1

    def totals(self) -> tuple[int, int]:
        """Return the requests waiting and in flight, over all running processes."""
        slots = [_SLOT.unpack_from(self._map, offset) for offset in _OFFSETS]
        counted = [slot for slot in slots if (slot[1] or slot[2]) and _lives(slot[0], slot[3])]
        return sum(slot[1] for slot in counted), sum(slot[2] for slot in counted)

    def processes(self) -> int:
        """Return the number of API server processes of this boot."""
        return sum(_SLOT.unpack_from(self._map, offset)[0] != 0 for offset in _OFFSETS)

    def passing(self) -> AbstractContextManager[None]:
        """Return a context in which a request counts as in flight."""
        return self._passage

    def count(self, more: int) -> None:
        """Add to the requests in flight."""
        self.in_flight += more
        self._publish()

    async def opened(self, *, on_trial: bool = False) -> None:
        """Wait until the gate is not closed; one poller serves all waiters of this process.

        ``on_trial``: or until it admits requests during a trial.
        """
        poller = self._admission if on_trial else self._opening
        self.waiting += 1
        self._publish()
        try:
            while not poller.is_so():
                await poller.wait()
        finally:
            self.waiting -= 1
            self._publish()

    def _publish(self) -> None:
        at = self._slot + _COUNTS_IN_SLOT
        _COUNTS.pack_into(self._map, at, self.waiting, self.in_flight)


class _Passage(AbstractContextManager[None]):
    """Counts requests in flight; a shared object, because a generator per request costs more."""

    __slots__ = ("_gate",)

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def __enter__(self) -> None:
        self._gate.count(1)

    def __exit__(self, *_error: object) -> None:
        self._gate.count(-1)


class _Poller:
    """Polls a condition that another process changes, once for all waiters of this process."""

    def __init__(self, is_so: Callable[[], bool]) -> None:
        self.is_so = is_so
        self._seen: asyncio.Event | None = None

    async def wait(self) -> None:
        """Wait until the condition may hold; the caller checks it and waits again."""
        if self._seen is not None:
            await self._seen.wait()
            return
        self._seen = event = asyncio.Event()
        try:
            while not self.is_so():  # noqa: ASYNC110 - another process changes it
                await asyncio.sleep(_POLL_S)
        finally:
            # A cancelled poller wakes the others too; the first of them continues to poll.
            self._seen = None
            event.set()


def _version_at(change: int) -> int:
    return _VERSIONS_AT + change % 2 * _VERSION_BYTES


def _lives(pid: int, since: int) -> bool:
    """Return whether a slot's process runs; the counts of a dead one are ignored."""
    return pid == os.getpid() or started(pid) == since != 0


@contextmanager
def _locked(file: int) -> Iterator[None]:
    """Lock the file against other processes; the caller must not await under it."""
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _attach(file: int, path: Path, boot: str) -> tuple[mmap.mmap, int]:
    """Map the file, reset if it is another boot's, and return this process' slot."""
    identity = _MAGIC + boot.encode()[:_BOOT_BYTES].ljust(_BOOT_BYTES, b"\0")
    with _locked(file):
        if os.fstat(file).st_size != _SIZE or os.pread(file, _FLAG, 0) != identity:
            os.ftruncate(file, 0)
            os.pwrite(file, identity.ljust(_SIZE, b"\0"), 0)
        shared = mmap.mmap(file, _SIZE)
        own = os.getpid()
        for offset in _OFFSETS:
            if _SLOT.unpack_from(shared, offset)[0] in (0, own):
                _SLOT.pack_into(shared, offset, own, 0, 0, started(own))
                return shared, offset
    raise RuntimeError(
        f"{path} has no free slot: more than {_SLOTS} API server processes; lower"
        " --api-server-count"
    )
