"""The versions that can be reloaded at once, and how one becomes such. Blocking: use a thread.

It must stay true that a version which is present was checked and read to its last byte, and
that what is handed to the engine still is what was checked then.
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from rlfleet_contract.engine.safetensors import FileStamp, Tensor
from rlfleet_contract.paths import BASE_VERSION
from rlfleet_contract.worker.commands import PrepareRequest
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.cache.cache import Cache, CacheRecord
from rlfleet_sidecar.cache.prepare_job import Work
from rlfleet_sidecar.cache.staging import Staging
from rlfleet_sidecar.checkpoints.check import Checkpoint, Checkpoints
from rlfleet_sidecar.checkpoints.headers import Content
from rlfleet_sidecar.checkpoints.manifest import manifest_of
from rlfleet_sidecar.checkpoints.safe_paths import Folder
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.state.required_tensors import drafters
from rlfleet_sidecar.timeouts import Glance

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class _Refused(NamedTuple):
    """The last version that was read and refused for good."""

    asked: tuple[str, str, str | None]
    files: tuple[FileStamp, ...]
    code: Code
    message: str


class Store:
    """Prepares versions and holds them."""

    def __init__(
        self,
        settings: SidecarSettings,
        checkpoints: Checkpoints,
        beside: Callable[[], int] = lambda: 0,
        glance: Glance | None = None,
    ) -> None:
        self._checkpoints = checkpoints
        self._cache: Cache | None = None
        if settings.cache_dir is not None:
            limit, spare = settings.cache_bytes, settings.cache_spare
            self._cache = Cache(settings.cache_dir, limit, spare, beside)
        self._in_place: dict[str, Checkpoint] = {}
        """Versions that are read where they lie: the base model, and all without a cache."""
        self._refused: _Refused | None = None
        self._glance = glance or Glance()

    def vocabulary(self) -> int:
        """Tell how many tokens the model knows."""
        return self._checkpoints.vocabulary()

    def boot_names(self) -> frozenset[str]:
        """Tell the names of the boot model's tensors."""
        return self._checkpoints.boot_names()

    def boot_tensors(self) -> tuple[Tensor, ...]:
        """Return the tensors of the base model's files."""
        return tuple(self._checkpoints.boot_model(self._checkpoints.deadline()).tensors.values())

    def boot_drafters(self) -> frozenset[str]:
        """Return the base model's tensors that only speculative decoding computes with."""
        model = self._checkpoints.boot_model(self._checkpoints.deadline())
        return drafters(model.tensors, model.config)

    def boot_files(self) -> tuple[FileStamp, ...]:
        """Return the files of the base model."""
        return self._checkpoints.boot_model(self._checkpoints.deadline()).files

    def free(self) -> int:
        """Tell how many bytes of the cache are left; 0 if there is none."""
        return self._cache.free() if self._cache else 0

    def staged(self) -> list[str]:
        """Tell the versions in the cache, newest first."""
        return [record.checkpoint.version for record in self._records()]

    def present(self, version: str) -> Checkpoint | None:
        """Tell what is known of a version that can be reloaded; looks at no file."""
        if version in self._in_place:
            return self._in_place[version]
        return next(
            (r.checkpoint for r in self._records() if r.checkpoint.version == version), None
        )

    def demand(self, version: str) -> Checkpoint:
        """Return a version that is present and still is what was checked; raises if not."""
        record = self._cache.find(version) if self._cache else None
        checkpoint = self._in_place.get(version) if record is None else record.checkpoint
        if checkpoint is None:
            raise SidecarError(Code.NOT_PREPARED, f"version {version} is no longer prepared")
        if version in self._in_place:
            try:
                self._checkpoints.demand_unchanged(version, checkpoint.files)
            except SidecarError:
                self._in_place.pop(version, None)
                raise
        return checkpoint

    def note_served(self, version: str | None) -> None:
        """Note what the engine serves: it is kept after the next version."""
        if self._cache is not None and version is not None:
            self._cache.note_served(version)

    def prepare(self, work: Work, request: PrepareRequest, needed: frozenset[str]) -> bool:
        """Check and read a version; tells whether it was not present before.

        Args:
            work: Told how far it is; ends it.
            request: What is asked for; a digest is what the version's manifest must hash to.
            needed: Versions that must not be evicted for it.

        """
        with _told(work.version):
            if self._known(work.version, request.digest) is not None:
                return False
        with _told(work.version), self._checkpoints.checked(work.version) as (folder, content):
            work.waiting_for = None
            with self._read_once(request, folder):
                self._read(work, folder, content, request.digest, needed)
        return True

    @contextmanager
    def _read_once(self, request: PrepareRequest, folder: Folder) -> Iterator[None]:
        """Refuse the same files to the same operation without reading them again.

        A driver asks every few seconds, for as long as a version is its target, and a large
        one takes minutes of disk and network. Whoever asks anew has it read anew.
        """
        asked = (request.operation, request.version, request.digest)
        # Seen before the reading, so that what is written meanwhile is another file.
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
        """Return a version that is present, unless its directory holds another by now."""
        record = self._cache.find(version) if self._cache else None
        if record is not None:
            found, sources = record.checkpoint, record.sources
        elif version in self._in_place:
            found = self._in_place[version]
            sources = found.files
        else:
            return None
        is_other = digest not in {None, found.manifest}
        look = partial(self._checkpoints.is_rewritten, version, sources)
        # A copy is whole whatever became of the volume: the way back must not hang on it.
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
        work: Work,
        folder: Folder,
        content: Content,
        digest: str | None,
        needed: frozenset[str],
    ) -> None:
        manifest = manifest_of(folder, content, digest)
        if manifest is not None and manifest.probe is not None:
            manifest.probe.demand_known(manifest.path, self.vocabulary())
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
def _told(version: str) -> Iterator[None]:
    """Tell in the contract's words what the file system says."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise SidecarError(
                Code.CACHE_FULL,
                f"the cache's file system was full before {version} was copied: free the node's"
                " disk, or raise spec.weights.cache.size",
            ) from error
        raise SidecarError(
            Code.CHECKPOINT_UNREADABLE, f"reading {version} failed: {error.strerror or error}"
        ) from error
