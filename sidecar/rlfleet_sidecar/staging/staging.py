"""One pass over a version: its files are made, digested and looked at at once.

It must stay true that the digested and scanned bytes are those that the engine loads, and that
they belong to the files whose headers were checked. As many threads as the container has CPUs:
the pods' requests divide a busy node, and with one thread a prepare waits most of its time.
"""

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from rlfleet_contract.engine.safetensors import BLAKE3, Algorithm, Digest, Tensor
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.checkpoints import compatibility
from rlfleet_sidecar.checkpoints.folder import Folder, Location, Reading
from rlfleet_sidecar.checkpoints.headers import Headers, invalid
from rlfleet_sidecar.checkpoints.manifest import Manifest
from rlfleet_sidecar.checkpoints.safe_paths import OpenFolder
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.staging import cpus
from rlfleet_sidecar.staging.crew import Crew
from rlfleet_sidecar.staging.digester import Digester
from rlfleet_sidecar.staging.folder_source import FolderSource, InPlace, demand_others, unchanged
from rlfleet_sidecar.staging.prepare_job import PrepareJob
from rlfleet_sidecar.staging.source import VersionSource
from rlfleet_sidecar.staging.store_source import StoreSource
from rlfleet_sidecar.staging.streams import (
    FileStream,
    FileValues,
    HeaderStream,
    Stream,
    TensorStream,
)
from rlfleet_sidecar.stores.objects import StoreFolder


class Staging:
    """Reads one version whose headers were checked. Blocking."""

    def __init__(
        self,
        content: Headers,
        manifest: Manifest | None,
        work: PrepareJob,
        algorithm: Algorithm = BLAKE3,
    ) -> None:
        self._content = content
        self._manifest = manifest
        self._work = work
        self._digest = Digest(algorithm)
        self._values: list[FileValues] = []
        self._threads = cpus.threads()

    def of_folder(
        self, folder: Folder, draft: Path | None, shared: VersionSource | None = None
    ) -> str:
        """Copy the version from its directory, or read it there; returns its digest.

        ``shared`` fills the draft instead, if other workers send what they have of it.
        """
        if self._manifest is not None:
            demand_others(folder, self._content, self._manifest, self._work)
        files = self._content.files
        if draft is not None:
            if shared is not None:
                return self.of_source(shared, draft)
            if isinstance(folder, StoreFolder):
                return self.of_source(StoreSource(folder, files), draft)
            return self.of_source(FolderSource(folder, files, self._threads), draft)
        checked = {stamp.name: stamp for stamp in files}

        def opening(name: str) -> AbstractContextManager[Reading]:
            return unchanged(folder, checked[name])

        here = InPlace(folder, files)
        with self._digester(here, opening) as digester:
            here.fill(Path(), digester.done)
        return self._digest.hexdigest()

    def demand_tied(self, where: Location) -> None:
        """Raise if the head differs from the embeddings, for an engine that ties them.

        It would load both into one parameter, and answer with the embeddings as head.
        """
        names = compatibility.untied(self._content.tensors)
        if names is not None and not self._digest.has_same_bytes(*names):
            head, embeddings = names
            raise invalid(
                where,
                f"has a {head} that differs from {embeddings}, though the base model ties them;"
                " save one of them, or set tie_word_embeddings to false in the base model's config"
                " and restart the engines",
            )

    def demand_published(self, where: Location, expected: str, optional: Collection[str]) -> None:
        """Raise unless the tensors are those of the digest that their publisher wrote.

        It may have left out what the engine ignores, which a base model's files may hold.
        """
        seen = {self._digest.hexdigest(), self._digest.hexdigest(optional)}
        if expected not in seen:
            raise SidecarError(
                Code.DIGEST_MISMATCH,
                f"{where} has tensors of digest {self._digest.hexdigest()}, expected {expected} by"
                " its index; check that its publisher began with this fleet's base model, and that"
                " no version was written again; else publish a full version",
            )

    def of_source(self, source: VersionSource, draft: Path) -> str:
        """Let a source fill the draft, and digest the draft; returns the digest."""
        with _private(draft) as folder, self._digester(source, folder.open) as digester:
            source.fill(draft, digester.done)
        return self._digest.hexdigest()

    @contextmanager
    def _digester(
        self, source: VersionSource, opening: Callable[[str], AbstractContextManager[Reading]]
    ) -> Iterator[Digester]:
        """Digest what the block reports; all is digested at its end."""
        self._work.begin(sum(stamp.size for stamp in self._content.files))
        streams = partial(self._streams, source)
        digester = Digester(source.sizes, streams, opening, self._work, source.where)
        try:
            with Crew("rlfleet-digest", digester.stop) as crew:
                crew.start(self._threads, digester.run)
                yield digester
                digester.filled()
            for file in self._values:
                file.demand()
        finally:
            digester.abandon()

    def _streams(self, source: VersionSource, name: str, size: int) -> list[Stream]:
        """Return what reads a file from its begin."""
        where = source.where(name)
        values = FileValues(where)
        self._values.append(values)

        def tensor(found: Tensor) -> Stream:
            return TensorStream(found, self._digest, where, values)

        streams: list[Stream] = []
        if any(stamp.name == name for stamp in self._content.files):
            streams.append(HeaderStream(size, self._content, tensor))
        if self._manifest is not None:
            streams.append(FileStream(name, size, self._manifest))
        return streams


@contextmanager
def _private(draft: Path) -> Iterator[OpenFolder]:
    descriptor = os.open(draft, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield OpenFolder(draft, descriptor, follow=False)
    finally:
        os.close(descriptor)
