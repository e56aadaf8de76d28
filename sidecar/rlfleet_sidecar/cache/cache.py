"""The worker's own copies of versions, on a bounded volume of the pod.

It must stay true that the volume's bound is not exceeded: the kubelet evicts a pod whose
emptyDir does.

Nothing is fsynced: a copy from before the machine was last started is not trusted, and
until then the page cache keeps it.
"""

import logging
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from pydantic import BaseModel, ConfigDict

from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.cache import eviction
from rlfleet_sidecar.cache.entries import Entries
from rlfleet_sidecar.checkpoints.check import Checkpoint
from rlfleet_sidecar.checkpoints.safe_paths import stamp_of
from rlfleet_sidecar.errors import SidecarError

_MACHINE_BOOT = Path("/proc/sys/kernel/random/boot_id")
_log = logging.getLogger(__name__)


class CacheRecord(BaseModel):
    """What is known of one staged version."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    checkpoint: Checkpoint
    sources: tuple[FileStamp, ...]
    """The trainer's files that it was copied from."""
    machine_boot: str
    staged_at: float
    nbytes: int
    """What it takes of the volume."""


class Cache:
    """The directory of staged versions. Blocking: use a thread."""

    def __init__(
        self,
        directory: Path,
        limit: int,
        spare_share: float,
        beside: Callable[[], int] = lambda: 0,
    ) -> None:
        self._entries = Entries(directory / "versions", CacheRecord)
        self.draft = self._entries.draft
        """Gives a directory to write into; whatever was not admitted goes."""
        self._limit = limit
        self._beside = beside
        """Tells what others keep on the same volume."""
        self._spare_share = spare_share
        self._machine_boot = _machine_boot()
        self._changing = threading.Lock()
        staged = self._entries.swept(self._is_trusted)
        self._records = {record.checkpoint.version: record for record in staged}

    def records(self) -> tuple[CacheRecord, ...]:
        """Tell what is staged, newest first."""
        found = sorted(self._records.values(), key=lambda record: record.staged_at)
        return tuple(reversed(found))

    def free(self) -> int:
        """Tell how many bytes are left."""
        return self._free([self._copy(record) for record in self.records()])

    def find(self, version: str) -> CacheRecord | None:
        """Tell what is known of a staged version; drops it if its files are not what they were."""
        record = self._records.get(version)
        if record is not None and not _is_whole(record):
            _log.warning("A staged version has changed and is dropped", extra={"version": version})
            self.drop(version)
            return None
        return record

    def drop(self, version: str) -> None:
        """Remove a staged version; whoever reads it now may go on."""
        with self._changing:
            self._drop(version)

    def note_served(self, version: str) -> None:
        """Note that the engine serves a version; the last one before the present is kept."""
        if version in self._records:
            self._entries.touch(version)

    def make_room(self, version: str, sizes: list[int], needed: frozenset[str]) -> None:
        """Evict what has to go for files of these sizes; raises, and evicts nothing, if in vain."""
        nbytes = eviction.footprint(sizes)
        with self._changing:
            self._drop(version)
            copies = [self._copy(record) for record in reversed(self.records())]
            free = self._free(copies)
            evicted = eviction.evictions(copies, needed, nbytes, free)
            if evicted is None:
                raise self._full(version, nbytes, copies, needed)
            for one in evicted:
                self._drop(one)
                _log.info("A staged version was evicted", extra={"version": one})

    def admit(self, draft: Path, checkpoint: Checkpoint, sources: tuple[FileStamp, ...]) -> None:
        """Make a finished draft the staged version."""
        record = CacheRecord(
            checkpoint=replace(
                checkpoint,
                directory=self._entries.root / checkpoint.version,
                files=tuple(_stamp(draft / stamp.name) for stamp in sources),
            ),
            sources=sources,
            machine_boot=self._machine_boot,
            staged_at=time.time(),
            nbytes=eviction.footprint([stamp.size for stamp in sources]),
        )
        with self._changing:
            self._records.pop(checkpoint.version, None)
            self._entries.admit(draft, checkpoint.version, record)
            self._records[checkpoint.version] = record
        _log.info(
            "A version was staged", extra={"version": checkpoint.version, "bytes": record.nbytes}
        )

    def _drop(self, version: str) -> None:
        self._records.pop(version, None)
        self._entries.drop(version)

    def _is_trusted(self, entry: Path, record: CacheRecord) -> bool:
        is_own = record.machine_boot == self._machine_boot
        return is_own and record.checkpoint.directory == entry and _is_whole(record)

    def _copy(self, record: CacheRecord) -> eviction.StagedCopy[str]:
        version = record.checkpoint.version
        return eviction.StagedCopy(version, record.nbytes, self._entries.used_at(version))

    def _free(self, copies: list[eviction.StagedCopy[str]]) -> int:
        usage = shutil.disk_usage(self._entries.root)
        spare = int(usage.total * self._spare_share)
        taken = sum(copy.nbytes for copy in copies) + self._beside()
        return min(self._limit - taken, usage.free - spare)

    def _full(
        self,
        version: str,
        nbytes: int,
        copies: list[eviction.StagedCopy[str]],
        needed: frozenset[str],
    ) -> SidecarError:
        kept = sum(copy.nbytes for copy in copies if copy.name in needed) + self._beside()
        usage = shutil.disk_usage(self._entries.root)
        if nbytes > self._limit - kept:
            return SidecarError(
                Code.CACHE_FULL,
                f"{version} takes {nbytes} bytes and {self._limit - kept} of the cache's"
                f" {self._limit} can be freed for it: raise spec.weights.cache.size, or set"
                " spec.weights.cache.enabled to false",
            )
        spare = int(usage.total * self._spare_share)
        return SidecarError(
            Code.CACHE_FULL,
            f"{version} takes {nbytes} bytes and the node's file system has {usage.free} free, of"
            f" which {spare} are left to the node: free some, or set spec.weights.cache.enabled to"
            " false",
        )


def _machine_boot() -> str:
    try:
        return _MACHINE_BOOT.read_text(encoding="ascii").strip()
    except OSError:
        # Without it no copy outlives the sidecar.
        return uuid4().hex


def _is_whole(record: CacheRecord) -> bool:
    checkpoint = record.checkpoint
    try:
        return all(_stamp(checkpoint.directory / stamp.name) == stamp for stamp in checkpoint.files)
    except OSError:
        return False


def _stamp(path: Path) -> FileStamp:
    return stamp_of(path.name, path.lstat())
