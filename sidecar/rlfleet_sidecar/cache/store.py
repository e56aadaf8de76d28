"""The prepared versions, in the cache or in place. Blocking: use a thread.

It must stay true that a present version was checked and read to its last byte, and that the
engine gets exactly the checked files.
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_contract.paths import BASE_VERSION, MANIFEST_FILE
from rlfleet_contract.worker.commands import PrepareRequest
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.supply import Supply
from rlfleet_sidecar.cache.cache import CacheRecord, Origin, VersionCache
from rlfleet_sidecar.checkpoints.check import Checkpoint, Checkpoints
from rlfleet_sidecar.checkpoints.folder import Folder, Location
from rlfleet_sidecar.checkpoints.headers import Headers
from rlfleet_sidecar.checkpoints.manifest import Manifest, manifest_of
from rlfleet_sidecar.deltas.publications import Build, Copy, Publications
from rlfleet_sidecar.deltas.published import Published
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.sharing.offering import Offering
from rlfleet_sidecar.sharing.piece_client import PeerTLS
from rlfleet_sidecar.sharing.pieces import edition_of, pieces_of
from rlfleet_sidecar.sharing.shared_source import SharedSource
from rlfleet_sidecar.sharing.shelf import PieceShelf
from rlfleet_sidecar.staging.prepare_job import PrepareJob
from rlfleet_sidecar.staging.staging import Staging
from rlfleet_sidecar.timeouts import Glance

_LOOK_S = 0.5
_LOOK_AT_STORE_S = 2.0
"""Each look is a request that costs money, and thousands of workers may wait."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_Needed = Callable[[], frozenset[str]]


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
        self.look_s = _LOOK_S if settings.weights_source is None else _LOOK_AT_STORE_S
        """Seconds between two looks for a version that is not complete yet."""
        self._cache_dir = settings.cache_dir
        self._cache: VersionCache | None = None
        if settings.cache_dir is not None:
            limit, spare = settings.cache_bytes, settings.cache_spare
            self._cache = VersionCache(settings.cache_dir, limit, spare, others)
        self._in_place: dict[str, Checkpoint] = {}
        """Versions that the engine reads in place: the base model, and all without a cache."""
        self._publications = Publications(settings, checkpoints, self._copy_of)
        self._refused: _Refused | None = None
        self.shelf = PieceShelf(self._shared_copy)
        """What other workers may have."""
        self._shared: tuple[CacheRecord, Offering] | None = None
        self._token_file = settings.token_file
        folder = settings.tls_dir
        self._tls = None if folder is None else PeerTLS(folder, settings.tls_name)
        self._glance = glance or Glance()

    def free(self, drafted: int) -> int:
        """Return the cache's free bytes for a draft of so many; 0 without a cache."""
        return self._cache.free(drafted) if self._cache else 0

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

    def prepare(self, work: PrepareJob, request: PrepareRequest, needed: _Needed) -> bool:
        """Check and read a version; returns whether it was not present before.

        Args:
            work: Its progress and cancellation.
            request: The version, and the digest that its manifest must have.
            needed: Returns the versions that must not be evicted.

        """
        with _io_errors(work.version, self._cache_dir):
            if self._known(work.version, request.digest) is not None:
                return False
        with _io_errors(work.version, self._cache_dir):
            published = self._publications.find(work.version)
            if published is not None and published.delta is not None:
                self._prepare_delta(work, request, needed)
            else:
                self._prepare_full(work, request, needed, published or Published(None))
        return True

    def _prepare_full(
        self,
        work: PrepareJob,
        request: PrepareRequest,
        needed: _Needed,
        known: Published,
    ) -> None:
        with self.checkpoints.checked(work.version, is_committed=known.is_committed) as checked:
            work.waiting_for = None
            # Before the read, so that a file which is written during it counts as another.
            with self._read_once(request, checked[0].stamps()):
                self._read(work, *checked, request, needed, known.digest)

    def _prepare_delta(self, work: PrepareJob, request: PrepareRequest, needed: _Needed) -> None:
        if self._cache is None:
            raise SidecarError(
                Code.CHECKPOINT_INVALID,
                f"{work.version} is a delta, which needs a cache to be built in; set"
                " spec.weights.cache.enabled to true",
            )
        if request.digest is not None:
            raise SidecarError(
                Code.DIGEST_MISMATCH,
                f"{work.version} is a delta and has no {MANIFEST_FILE}, expected {request.digest};"
                " remove spec.weights.digest",
            )
        with self._publications.build(work.version, work.demand_wanted) as build:
            work.waiting_for = None
            with self._read_once(request, build.all_files):
                self._build(work, build, self._cache, needed)

    def _build(self, work: PrepareJob, build: Build, cache: VersionCache, needed: _Needed) -> None:
        """Make a delta's whole files in the cache."""
        content = build.content
        sizes = [stamp.size for stamp in content.files]
        in_use = partial(_in_use, work, needed, build.chain.start)
        with cache.room(work.version, sizes, in_use) as draft:
            staging = Staging(content, None, work)
            hashed = staging.of_source(build.source, draft)
            where = self.checkpoints.layouts.folder_of(work.version)
            self._demand_good(staging, where, build.chain.links[-1].digest)
            made = Checkpoint(
                version=work.version,
                directory=draft,
                files=content.files,
                tensors=len(content.tensors),
                nbytes=content.nbytes,
                digest=hashed,
            )
            work.demand_wanted()
            cache.admit(draft, made, Origin(build.files, build.run, build.chain.start))

    @contextmanager
    def _read_once(self, request: PrepareRequest, files: tuple[FileStamp, ...]) -> Iterator[None]:
        """Raise the last rejection for the same files and operation, without another read.

        A driver repeats a prepare every few seconds, and a large version takes minutes of disk
        and network. Another operation reads it again.
        """
        asked = (request.operation, request.version, request.digest)
        known = self._refused
        if known is not None and (known.asked, known.files) == (asked, files):
            raise SidecarError(known.code, known.message)
        try:
            yield
        except SidecarError as error:
            if not error.code.retryable:
                self._refused = _Refused(asked, files, error.code, error.message)
            raise

    def _copy_of(self, version: str) -> Copy | None:
        """Return the staged copy of a version, which a delta may be built from."""
        record = self._cache.find(version) if self._cache else None
        return None if record is None else Copy(record.checkpoint, record.sources, record.run)

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
        look = partial(self._is_replaced, version, sources, "" if record is None else record.run)
        # A copy is complete without the volume, so a rollback must not wait for the volume.
        if is_other or (look() if record is None else self._glance.sees(look)):
            return None
        return found if record is not None else self._unchanged(found)

    def _is_replaced(self, version: str, sources: tuple[FileStamp, ...], run: str) -> bool:
        """Return whether something else is published under the name of a present version."""
        if self.checkpoints.is_rewritten(version, sources):
            return True
        try:
            return self._publications.run_of(version) not in {"", run}
        except (SidecarError, OSError):
            # A pointer that says nothing replaces nothing: a rollback must not wait for it.
            return False

    def _unchanged(self, found: Checkpoint) -> Checkpoint | None:
        try:
            return self.demand(found.version)
        except SidecarError:
            return None

    def _read(
        self,
        work: PrepareJob,
        folder: Folder,
        content: Headers,
        request: PrepareRequest,
        needed: _Needed,
        digest: str | None,
    ) -> None:
        manifest = self._manifest_of(folder, content, request)
        staging = Staging(content, manifest, work)
        version = work.version

        def checkpoint(hashed: str) -> Checkpoint:
            return Checkpoint(
                version=version,
                directory=Path(str(folder.path)),
                files=content.files,
                tensors=len(content.tensors),
                nbytes=content.nbytes,
                digest=hashed,
                manifest=None if manifest is None else manifest.digest,
                probe=None if manifest is None else manifest.probe,
            )

        if self._cache is None or version == BASE_VERSION:
            made = checkpoint(staging.of_folder(folder, None))
            self._demand_good(staging, folder.path, digest)
            self._in_place[version] = made
            return
        sizes = [stamp.size for stamp in content.files]
        with (
            self._cache.room(version, sizes, partial(_in_use, work, needed)) as draft,
            self._sharing(work, folder, content, request.supply, draft) as shared,
        ):
            made = checkpoint(staging.of_folder(folder, draft, shared))
            self._demand_good(staging, folder.path, digest)
            work.demand_wanted()
            self._cache.admit(draft, made, self._origin(version, content, shared))

    def _demand_good(self, staging: Staging, where: Location, digest: str | None) -> None:
        if digest is not None:
            staging.demand_published(where, digest, self.checkpoints.optional())
        if self.checkpoints.ties_head:
            staging.demand_tied(where)

    def _manifest_of(
        self, folder: Folder, content: Headers, request: PrepareRequest
    ) -> Manifest | None:
        """Return the version's manifest, whose probe must fit the model."""
        manifest = manifest_of(folder, content, request.digest)
        if manifest is not None and manifest.probe is not None:
            manifest.probe.demand_known(
                str(manifest.folder / MANIFEST_FILE), self.checkpoints.vocabulary()
            )
        return manifest

    def _origin(self, version: str, content: Headers, shared: SharedSource | None) -> Origin:
        known = Origin(content.files, self._publications.run_of(version))
        if shared is None:
            return known
        return known._replace(shares=True, pieces=shared.hashes())

    @contextmanager
    def _sharing(
        self,
        work: PrepareJob,
        folder: Folder,
        content: Headers,
        supply: Supply | None,
        draft: Path,
    ) -> Iterator[SharedSource | None]:
        """Yield what receives the version and offers it, if there is a supply."""
        if supply is None:
            yield None
            return
        files, reads = content.files, not supply.readers
        offering = Offering(work.version, edition_of(files), pieces_of(files), draft, reads=reads)
        demand = partial(work.advance, 0)
        with self.shelf.offered(offering):
            yield SharedSource(folder, files, supply, offering, self._token, demand, self._tls)

    def _token(self) -> str:
        return self._token_file.read_text(encoding="latin-1").strip()

    def _shared_copy(self, version: str) -> Offering | None:
        """Return what other workers may have of a staged version; kept until it changes."""
        record = self._cache.find(version) if self._cache else None
        if record is None or not record.shares:
            return None
        if self._shared is None or self._shared[0] is not record:
            staged, sources = record.checkpoint, record.sources
            found = Offering.of_copy(
                version,
                edition_of(sources),
                pieces_of(sources),
                staged.directory,
                staged.files,
                record.pieces,
            )
            self._shared = record, found
        return self._shared[1]


def _in_use(work: PrepareJob, needed: _Needed, *more: str) -> frozenset[str]:
    """Return the versions that must not be evicted; raises if the prepare is superseded."""
    work.demand_wanted()
    return needed() | {*more}


@contextmanager
def _io_errors(version: str, cache_dir: Path | None) -> Iterator[None]:
    """Turn errors of the file system into problems."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise SidecarError(
                Code.CACHE_FULL,
                f"no space or inodes left for the cache's copy of {version}; free some on the node"
                " (df, df -i), or raise spec.weights.cache.size",
            ) from error
        why = error.strerror or error
        if cache_dir is not None and str(error.filename).startswith(f"{cache_dir}/"):
            raise SidecarError(
                Code.CHECKPOINT_UNREADABLE,
                # Not the file: a draft has another name in each try, and status would change.
                f"failed to copy {version} into the cache: {cache_dir}: {why}; check its owner and"
                " mode, or delete the pod",
            ) from error
        raise SidecarError(
            Code.CHECKPOINT_UNREADABLE, f"failed to read {version}: {why}; check its volume"
        ) from error
