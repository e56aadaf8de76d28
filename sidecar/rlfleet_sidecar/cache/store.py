"""The prepared versions, in the cache or in place. Blocking: use a thread.

It must stay true that a present version was checked and read to its last byte, and that the
engine gets exactly the checked files.
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_contract.paths import BASE_VERSION
from rlfleet_contract.worker.commands import PrepareRequest
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.cache.cache import CacheRecord, VersionCache
from rlfleet_sidecar.cache.prepare_job import PrepareJob
from rlfleet_sidecar.cache.staging import Staging
from rlfleet_sidecar.checkpoints.check import Checkpoint, Checkpoints
from rlfleet_sidecar.checkpoints.headers import Headers
from rlfleet_sidecar.checkpoints.manifest import manifest_of
from rlfleet_sidecar.checkpoints.safe_paths import OpenFolder
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.timeouts import Glance

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class _Refused(NamedTuple):
    """The last version that was read and rejected."""

    asked: tuple[str, str, str | None]
    files: tuple[FileStamp, ...]
    code: Code
    message: str


class VersionStore:
    """Prepares versions and keeps them."""

    def __init__(
        self,
        settings: SidecarSettings,
        checkpoints: Checkpoints,
        others: Callable[[], int] = lambda: 0,
        glance: Glance | None = None,
    ) -> None:
        self.checkpoints = checkpoints
        self._cache: VersionCache | None = None
        if settings.cache_dir is not None:
            limit, spare = settings.cache_bytes, settings.cache_spare
            self._cache = VersionCache(settings.cache_dir, limit, spare, others)
        self._in_place: dict[str, Checkpoint] = {}
        """Versions that the engine reads in place: the base model, and all without a cache."""
        self._refused: _Refused | None = None
        self._glance = glance or Glance()

    def free(self) -> int:
        """Return the free bytes of the cache; 0 without one."""
        return self._cache.free() if self._cache else 0

    def staged(self) -> list[str]:
        """Return the versions in the cache, newest first."""
        return [record.checkpoint.version for record in self._records()]

    def present(self, version: str) -> Checkpoint | None:
        """Return a prepared version, without access to its files."""
        if version in self._in_place:
            return self._in_place[version]
        return next(
            (r.checkpoint for r in self._records() if r.checkpoint.version == version), None
        )

    def demand(self, version: str) -> Checkpoint:
        """Return a prepared version; raises if it is absent or its files have changed."""
        record = self._cache.find(version) if self._cache else None
        checkpoint = self._in_place.get(version) if record is None else record.checkpoint
        if checkpoint is None:
            raise SidecarError(
                Code.NOT_PREPARED, f"version {version} is no longer prepared; send prepare again"
            )
        if version in self._in_place:
            try:
                self.checkpoints.demand_unchanged(version, checkpoint.files)
            except SidecarError:
                self._in_place.pop(version, None)
                raise
        return checkpoint

    def note_served(self, version: str | None) -> None:
        """Record the version that the engine serves, which is kept for a rollback."""
        if self._cache is not None and version is not None:
            self._cache.note_served(version)

    def prepare(self, work: PrepareJob, request: PrepareRequest, needed: frozenset[str]) -> bool:
        """Check and read a version; returns whether it was not present before.

        Args:
            work: Its progress and cancellation.
            request: The version, and the digest that its manifest must have.
            needed: Versions that must not be evicted.

        """
        with _io_errors(work.version):
            if self._known(work.version, request.digest) is not None:
                return False
        with _io_errors(work.version), self.checkpoints.checked(work.version) as (folder, content):
            work.waiting_for = None
            with self._read_once(request, folder):
                self._read(work, folder, content, request.digest, needed)
        return True

    @contextmanager
    def _read_once(self, request: PrepareRequest, folder: OpenFolder) -> Iterator[None]:
        """Raise the last rejection for the same files and operation, without another read.

        A driver repeats a prepare every few seconds, and a large version takes minutes of disk
        and network. Another operation reads it again.
        """
        asked = (request.operation, request.version, request.digest)
        # Before the read, so that a file which is written during it counts as another.
        files = folder.stamps()
        known = self._refused
        if known is not None and (known.asked, known.files) == (asked, files):
            raise SidecarError(known.code, known.message)
        try:
            yield
        except SidecarError as error:
            if not error.code.retryable:
                self._refused = _Refused(asked, files, error.code, error.message)
            raise

    def _records(self) -> tuple[CacheRecord, ...]:
        return self._cache.records() if self._cache else ()

    def _known(self, version: str, digest: str | None) -> Checkpoint | None:
        """Return a present version, unless its directory has other files by now."""
        record = self._cache.find(version) if self._cache else None
        if record is not None:
            found, sources = record.checkpoint, record.sources
        elif version in self._in_place:
            found = self._in_place[version]
            sources = found.files
        else:
            return None
        is_other = digest not in {None, found.manifest}
        look = partial(self.checkpoints.is_rewritten, version, sources)
        # A copy is complete without the volume, so a rollback must not wait for the volume.
        if is_other or (look() if record is None else self._glance.sees(look)):
            return None
        return found if record is not None else self._unchanged(found)

    def _unchanged(self, found: Checkpoint) -> Checkpoint | None:
        try:
            return self.demand(found.version)
        except SidecarError:
            return None

    def _read(
        self,
        work: PrepareJob,
        folder: OpenFolder,
        content: Headers,
        digest: str | None,
        needed: frozenset[str],
    ) -> None:
        manifest = manifest_of(folder, content, digest)
        if manifest is not None and manifest.probe is not None:
            manifest.probe.demand_known(manifest.path, self.checkpoints.vocabulary())
        staging = Staging(folder, content, manifest, work)
        version = work.version

        def checkpoint(hashed: str) -> Checkpoint:
            return Checkpoint(
                version=version,
                directory=folder.path,
                files=content.files,
                tensors=len(content.tensors),
                nbytes=content.nbytes,
                digest=hashed,
                manifest=None if manifest is None else manifest.digest,
                probe=None if manifest is None else manifest.probe,
            )

        if self._cache is None or version == BASE_VERSION:
            self._in_place[version] = checkpoint(staging.run(None))
            return
        self._cache.make_room(version, [stamp.size for stamp in content.files], needed)
        with self._cache.draft() as draft:
            made = checkpoint(staging.run(draft))
            work.demand_wanted()
            self._cache.admit(draft, made, content.files)


@contextmanager
def _io_errors(version: str) -> Iterator[None]:
    """Turn errors of the file system into problems."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise SidecarError(
                Code.CACHE_FULL,
                f"cache's file system full during the copy of {version}; free space on the node, or"
                " raise spec.weights.cache.size",
            ) from error
        raise SidecarError(
            Code.CHECKPOINT_UNREADABLE,
            f"failed to read {version}: {error.strerror or error}; check its volume",
        ) from error
