"""The worker's copies of versions, on a bounded volume of the pod.

It must stay true that the volume's limit is not exceeded: the kubelet evicts a pod whose
emptyDir is too large. Nothing is synced: a copy from before the node's last boot is not
trusted, and until then the page cache has it.
"""

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from pydantic import BaseModel, ConfigDict

from rlfleet_contract.engine.safetensors import BLAKE3, FileStamp
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.cache import eviction
from rlfleet_sidecar.cache.entries import Entries
from rlfleet_sidecar.checkpoints.check import Checkpoint
from rlfleet_sidecar.checkpoints.safe_paths import stamp_of
from rlfleet_sidecar.errors import SidecarError

_MACHINE_BOOT = Path("/proc/sys/kernel/random/boot_id")
_log = logging.getLogger(__name__)


class CacheRecord(BaseModel):
    """The record of one staged version."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    checkpoint: Checkpoint
    sources: tuple[FileStamp, ...]
    """The trainer's files from which it was made."""
    run: str = ""
    """The run of Stitch's store that it belongs to; empty without one."""
    start: str | None = None
    """Of a delta: the version from which it was built."""
    shares: bool = False
    """Whether other workers may have its pieces."""
    pieces: tuple[str, ...] = ()
    """The hashes of its pieces, if this worker read them from the store."""
    machine_boot: str
    staged_at: float
    nbytes: int
    """Bytes that it occupies."""


class Origin(NamedTuple):
    """Where a staged version came from."""

    sources: tuple[FileStamp, ...]
    run: str = ""
    start: str | None = None
    shares: bool = False
    pieces: tuple[str, ...] = ()


class VersionCache:
    """The directory of staged versions. Blocking: use a thread."""

    def __init__(
        self,
        directory: Path,
        limit: int,
        spare_share: float,
        others: Callable[[], int] = lambda: 0,
    ) -> None:
        self._entries = Entries(directory / "versions", CacheRecord)
        self._limit = limit
        self._others = others
        """Returns the bytes of other copies on the volume."""
        self._spare_share = spare_share
        self._machine_boot = _machine_boot()
        self._changing = threading.Lock()
        staged = self._entries.swept(self._is_trusted)
        self._records = {record.checkpoint.version: record for record in staged}

    def records(self) -> tuple[CacheRecord, ...]:
        """Return the staged versions, newest first."""
        found = sorted(self._records.values(), key=lambda record: record.staged_at)
        return tuple(reversed(found))

    def free(self, drafted: int) -> int:
        """Return how many bytes are free for a draft of so many, which is counted already."""
        return self._free([self._copy(record) for record in self.records()], drafted)

    def find(self, version: str) -> CacheRecord | None:
        """Return a staged version; drops it if its files have changed."""
        record = self._records.get(version)
        if record is not None and not _is_whole(record):
            _log.warning("Staged version changed, dropping it", extra={"version": version})
            self.drop(version)
            return None
        return record

    def drop(self, version: str) -> None:
        """Remove a staged version; open files stay readable."""
        with self._changing:
            self._drop(version)

    def note_served(self, version: str) -> None:
        """Record that the engine serves a version; the one before is kept for a rollback."""
        if version not in self._records:
            return
        try:
            self._entries.touch(version)
        except OSError as error:
            # A copy that cannot be written is rejected in its own words.
            _log.warning("Use not recorded", extra={"version": version, "error": str(error)})

    @contextmanager
    def room(
        self, version: str, sizes: list[int], in_use: Callable[[], frozenset[str]]
    ) -> Iterator[Path]:
        """Evict versions for files of these sizes, and yield a directory to write them into.

        Raises without an eviction if there cannot be room. The directory is removed unless it is
        admitted; until then its bytes are not free for adapters.

        Args:
            version: The version that is to be staged.
            sizes: Of its files.
            in_use: Returns the versions that must stay; raises if the room is not wanted now.

        """
        nbytes = eviction.footprint(sizes)
        with ExitStack() as stack:
            with self._changing:
                draft = stack.enter_context(self._entries.draft(nbytes))
                # Only here: what was in use when a thread began to hang says nothing when it wakes.
                self._make_room(version, nbytes, in_use())
            yield draft

    def admit(self, draft: Path, checkpoint: Checkpoint, origin: Origin) -> None:
        """Make a finished draft the staged version."""
        files = checkpoint.files
        record = CacheRecord(
            checkpoint=replace(
                checkpoint,
                directory=self._entries.root / checkpoint.version,
                files=tuple(_stamp(draft / stamp.name) for stamp in files),
            ),
            sources=origin.sources,
            run=origin.run,
            start=origin.start,
            shares=origin.shares,
            pieces=origin.pieces,
            machine_boot=self._machine_boot,
            staged_at=time.time(),
            nbytes=eviction.footprint([stamp.size for stamp in files]),
        )
        with self._changing:
            self._records.pop(checkpoint.version, None)
            self._entries.admit(draft, checkpoint.version, record)
            self._records[checkpoint.version] = record
        _log.info("Version staged", extra={"version": checkpoint.version, "bytes": record.nbytes})

    def _make_room(self, version: str, nbytes: int, needed: frozenset[str]) -> None:
        self._drop(version)
        copies = [self._copy(record) for record in reversed(self.records())]
        # One version is written at a time; a draft of a thread that hangs is removed when it wakes.
        free = self._free(copies, self._entries.drafted)
        evicted = eviction.evictions(copies, needed, nbytes, free)
        if evicted is None:
            raise self._full(version, nbytes, copies, needed)
        for one in evicted:
            self._drop(one)
            _log.info("Staged version evicted", extra={"version": one})

    def _drop(self, version: str) -> None:
        self._records.pop(version, None)
        self._entries.drop(version)

    def _is_trusted(self, entry: Path, record: CacheRecord) -> bool:
        is_own = record.machine_boot == self._machine_boot
        # A copy that another release digested is staged again: its engine could not compare it.
        is_own &= record.checkpoint.digest.startswith(BLAKE3.prefix)
        return is_own and record.checkpoint.directory == entry and _is_whole(record)

    def _copy(self, record: CacheRecord) -> eviction.StagedCopy[str]:
        version = record.checkpoint.version
        return eviction.StagedCopy(version, record.nbytes, self._entries.used_at(version))

    def _free(self, copies: list[eviction.StagedCopy[str]], drafted: int) -> int:
        usage = shutil.disk_usage(self._entries.root)
        spare = int(usage.total * self._spare_share)
        taken = sum(copy.nbytes for copy in copies) + self._entries.drafted + self._others()
        return min(self._limit - taken + drafted, usage.free - spare)

    def _full(
        self,
        version: str,
        nbytes: int,
        copies: list[eviction.StagedCopy[str]],
        needed: frozenset[str],
    ) -> SidecarError:
        in_use = sum(copy.nbytes for copy in copies if copy.name in needed)
        kept = in_use + self._others()
        usage = shutil.disk_usage(self._entries.root)
        if nbytes > self._limit - kept:
            return SidecarError(
                Code.CACHE_FULL,
                f"cache too small for {version} ({nbytes} bytes; at most {self._limit - kept} of"
                f" {self._limit} can be freed); raise spec.weights.cache.size, or set"
                " spec.weights.cache.enabled to false",
            )
        spare = int(usage.total * self._spare_share)
        evictable = sum(copy.nbytes for copy in copies) - in_use
        short = max(0, nbytes - evictable - usage.free + spare)
        return SidecarError(
            Code.CACHE_FULL,
            f"node's disk too full for {version}: {short} bytes short ({usage.free} of"
            f" {usage.total} free; {spare} stay free for others); delete files or images on the"
            " node, or set spec.weights.cache.enabled to false",
        )


def _machine_boot() -> str:
    try:
        return _MACHINE_BOOT.read_text(encoding="ascii").strip()
    except OSError:
        # Then no copy is trusted after a restart of the sidecar.
        return uuid4().hex


def _is_whole(record: CacheRecord) -> bool:
    checkpoint = record.checkpoint
    try:
        return all(_stamp(checkpoint.directory / stamp.name) == stamp for stamp in checkpoint.files)
    except OSError:
        return False


def _stamp(path: Path) -> FileStamp:
    return stamp_of(path.name, path.lstat())
