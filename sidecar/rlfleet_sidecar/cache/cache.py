"""The worker's own copies of versions, on a bounded volume of the pod.

A copy is written into a draft and renamed when it is whole, with a record of what was
checked; a sidecar that starts trusts records and sweeps out the rest. It must stay true
that nothing half written is ever found, and that the volume's bound is not exceeded: the
kubelet evicts a pod whose emptyDir does.

Nothing is fsynced: a copy from before the machine was last started is not trusted, and
until then the page cache keeps it.
"""

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, ValidationError

from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.cache import eviction
from rlfleet_sidecar.checkpoints.check import Checkpoint
from rlfleet_sidecar.checkpoints.safe_paths import stamp_of
from rlfleet_sidecar.errors import SidecarError

_RECORD = ".record.json"
_PROVED = ".proved"
_DRAFT = ".draft-"
_OLD = ".old-"
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
        # Of its own, because whatever else lies there is swept out.
        self._directory = directory / "versions"
        self._limit = limit
        self._beside = beside
        """Tells what others keep on the same volume."""
        self._spare_share = spare_share
        self._machine_boot = _machine_boot()
        self._changing = threading.Lock()
        self._directory.mkdir(parents=True, exist_ok=True)
        self._records = self._swept()

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
        directory = self._directory / version
        if version in self._records and directory.is_dir():
            (directory / _PROVED).touch()

    @contextmanager
    def draft(self) -> Iterator[Path]:
        """Give a directory to write into; whatever was not admitted goes."""
        draft = self._directory / f"{_DRAFT}{uuid4().hex}"
        draft.mkdir()
        try:
            yield draft
        finally:
            shutil.rmtree(draft, ignore_errors=True)

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
        directory = self._directory / checkpoint.version
        record = CacheRecord(
            checkpoint=replace(
                checkpoint,
                directory=directory,
                files=tuple(_stamp(draft / stamp.name) for stamp in sources),
            ),
            sources=sources,
            machine_boot=self._machine_boot,
            staged_at=time.time(),
            nbytes=eviction.footprint([stamp.size for stamp in sources]),
        )
        (draft / _RECORD).write_text(record.model_dump_json(), encoding="utf-8")
        with self._changing:
            self._drop(checkpoint.version)
            draft.rename(directory)
            self._records[checkpoint.version] = record
        _log.info(
            "A version was staged", extra={"version": checkpoint.version, "bytes": record.nbytes}
        )

    def _drop(self, version: str) -> None:
        self._records.pop(version, None)
        directory = self._directory / version
        if directory.is_dir():
            # Renamed first: a directory that is half removed must not be found.
            gone = directory.rename(self._directory / f"{_OLD}{uuid4().hex}")
            shutil.rmtree(gone, ignore_errors=True)

    def _swept(self) -> dict[str, CacheRecord]:
        """Find the copies that can be trusted and remove everything else."""
        found: dict[str, CacheRecord] = {}
        for entry in sorted(self._directory.iterdir()):
            record = None if entry.name.startswith(".") else _read(entry / _RECORD)
            if (
                record is not None
                and record.machine_boot == self._machine_boot
                and record.checkpoint.directory == entry
                and _is_whole(record)
            ):
                found[entry.name] = record
            elif entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
        return found

    def _copy(self, record: CacheRecord) -> eviction.StagedCopy:
        version = record.checkpoint.version
        try:
            proved_at = (self._directory / version / _PROVED).stat().st_mtime
        except FileNotFoundError:
            proved_at = None
        return eviction.StagedCopy(version, record.nbytes, proved_at)

    def _free(self, copies: list[eviction.StagedCopy]) -> int:
        usage = shutil.disk_usage(self._directory)
        spare = int(usage.total * self._spare_share)
        taken = sum(copy.nbytes for copy in copies) + self._beside()
        return min(self._limit - taken, usage.free - spare)

    def _full(
        self, version: str, nbytes: int, copies: list[eviction.StagedCopy], needed: frozenset[str]
    ) -> SidecarError:
        held = sum(copy.nbytes for copy in copies if copy.version in needed) + self._beside()
        usage = shutil.disk_usage(self._directory)
        if nbytes > self._limit - held:
            return SidecarError(
                Code.CACHE_FULL,
                f"{version} takes {nbytes} bytes and {self._limit - held} of the cache's"
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


def _read(path: Path) -> CacheRecord | None:
    try:
        return CacheRecord.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def _is_whole(record: CacheRecord) -> bool:
    checkpoint = record.checkpoint
    try:
        return all(_stamp(checkpoint.directory / stamp.name) == stamp for stamp in checkpoint.files)
    except OSError:
        return False


def _stamp(path: Path) -> FileStamp:
    return stamp_of(path.name, path.lstat())
