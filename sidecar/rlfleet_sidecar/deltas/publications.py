"""The versions of a series beneath the weights root: which are deltas, and how one is built.

It must stay true that every delta of a chain is checked before one is applied, and that what is
applied is what was checked.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_contract.paths import BASE_VERSION
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.checkpoints.check import Checkpoint, Checkpoints, is_alike
from rlfleet_sidecar.checkpoints.folder import Folder
from rlfleet_sidecar.checkpoints.headers import Headers, content_of
from rlfleet_sidecar.checkpoints.manifest import demand_hashes, manifest_of
from rlfleet_sidecar.checkpoints.safe_paths import open_copy
from rlfleet_sidecar.deltas.chain import Chain, Link, chain_to
from rlfleet_sidecar.deltas.formats.names import WEIGHTS, Series, series_of
from rlfleet_sidecar.deltas.formats.pointer import LATEST, MAX_BYTES, UPDATES, Pointer, pointer_of
from rlfleet_sidecar.deltas.published import Published, defects_named, published_in
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.staging import cpus
from rlfleet_sidecar.staging.source import VersionSource

if TYPE_CHECKING:
    from rlfleet_sidecar.deltas.open_delta import OpenDelta

AT_ONCE = 32
"""How many deltas are applied in one pass: each holds a decoder's window in each thread."""
FILES_AT_ONCE = 256
"""How many files of them are open, well below the usual limit of 1024 for a process."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Copy:
    """A version in the worker's cache, and the files that it was made from."""

    checkpoint: Checkpoint
    sources: tuple[FileStamp, ...]
    run: str


@dataclass(frozen=True, slots=True)
class Build:
    """How a delta becomes whole files."""

    chain: Chain
    content: Headers
    """Of the start, and so of the target."""
    source: VersionSource
    run: str
    """Stitch's run, or empty."""

    @property
    def files(self) -> tuple[FileStamp, ...]:
        """The published files of the delta itself."""
        return self.chain.links[-1].files

    @property
    def all_files(self) -> tuple[FileStamp, ...]:
        """The published files of all deltas, and those of the start."""
        deltas = (stamp for link in self.chain.links for stamp in link.files)
        return (*deltas, *self.content.files)


class Publications:
    """Reads series of versions. Blocking: use a thread."""

    def __init__(
        self,
        settings: SidecarSettings,
        checkpoints: Checkpoints,
        copy_of: Callable[[str], Copy | None] = lambda _: None,
        at_once: int = AT_ONCE,
    ) -> None:
        self._settings = settings
        self._checkpoints = checkpoints
        self._copy_of = copy_of
        """Returns the worker's copy of a version."""
        self._at_once = at_once
        self._layouts = checkpoints.layouts

    def find(self, version: str) -> Published | None:
        """Return what is published as a version; None if it is of no series.

        Raises SidecarError if it is not complete, or malformed.
        """
        found = series_of(version)
        if found is None:
            return None
        self._pointed(*found)
        return self._read(version, *found)

    def run_of(self, version: str) -> str:
        """Return the run that a version belongs to now; empty if it is of no Stitch store."""
        found = series_of(version)
        if found is None:
            return ""
        with self._pointer(found[0]) as pointer:
            return "" if pointer is None else pointer.run

    @contextmanager
    def build(
        self, version: str, demand_wanted: Callable[[], None] = lambda: None
    ) -> Iterator[Build]:
        """Open what a delta is built from, after all checks but those of the bytes.

        Args:
            version: Of the delta.
            demand_wanted: Called during the checks; raises to end them.

        """
        from rlfleet_sidecar.deltas.fold import FoldedSource

        found = series_of(version)
        if found is None:
            raise SidecarError(Code.VERSION_NOT_FOUND, f"{version} is not the name of a delta")
        series, number = found
        run = self._pointed(series, number)

        def look(number: int) -> Published | None:
            demand_wanted()
            return self._look(series, number)

        chain = chain_to(series, number, partial(self._is_staged, run), look)
        with self._start(chain.start, look, demand_wanted) as (folder, content):
            passes = [
                partial(self._opened, series, links, content, demand_wanted)
                for links in grouped(chain.links, self._at_once)
            ]
            for check in passes if len(passes) > 1 else ():
                with check():
                    pass
            where = self._layouts.folder_of(version)
            source = FoldedSource(folder, content, passes, cpus.threads(), where)
            yield Build(chain, content, source, run)

    def is_same(self, version: str, files: Sequence[FileStamp]) -> bool:
        """Return whether a version's directory still has exactly these files."""
        try:
            with self._checkpoints.opened(version) as folders:
                seen = [(stamp, folders[-1].stamp(stamp.name)) for stamp in files]
        except SidecarError:
            return False
        return all(found is not None and is_alike(stamp, found) for stamp, found in seen)

    def _is_staged(self, run: str, version: str) -> bool:
        copy = self._copy_of(version)
        return copy is not None and copy.run == run and self.is_same(version, copy.sources)

    def _look(self, series: Series, number: int) -> Published | None:
        try:
            return self._read(series.name(number), series, number)
        except SidecarError as error:
            if error.code is Code.VERSION_NOT_FOUND:
                return None
            raise

    def _read(self, version: str, series: Series, number: int) -> Published:
        deadline = time.monotonic() + self._settings.check_s
        with self._checkpoints.opened(version) as folders:
            return published_in(folders, series, number, self._settings.markers, deadline)

    @contextmanager
    def _start(
        self,
        start: str,
        look: Callable[[int], Published | None],
        demand_wanted: Callable[[], None],
    ) -> Iterator[tuple[Folder, Headers]]:
        copy = None if start == BASE_VERSION else self._copy_of(start)
        if copy is not None:
            with open_copy(copy.checkpoint.directory) as folder:
                yield folder, content_of(folder, time.monotonic() + self._settings.check_s)
            return
        found = series_of(start)
        full = look(found[1]) if found is not None else None
        is_committed = full is not None and full.is_committed
        with self._checkpoints.checked(start, is_committed=is_committed) as (folder, content):
            # Of what no delta changes, only a manifest says what it must be.
            listed = manifest_of(folder, content, None)
            if listed is not None:
                demand_hashes(folder, listed, sorted(listed.hashes), demand_wanted)
            yield folder, content

    @contextmanager
    def _opened(
        self,
        series: Series,
        links: Sequence[Link],
        content: Headers,
        demand_wanted: Callable[[], None],
    ) -> Iterator["Sequence[OpenDelta]"]:
        """Open the deltas of one pass, once all of them were checked."""
        from rlfleet_sidecar.deltas.open_delta import opened

        deadline = time.monotonic() + self._settings.check_s
        with ExitStack() as stack:
            deltas: list[OpenDelta] = []
            for link in links:
                folders = stack.enter_context(self._checkpoints.opened(link.version))
                folder, markers = folders[-1], self._settings.markers
                found = published_in(folders, series, link.number, markers, deadline)
                if found.delta is None or found.identity != link.identity:
                    raise SidecarError(
                        Code.CHECKPOINT_INCOMPLETE,
                        f"{folder.path} was written again during the check; wait until its"
                        " publisher has ended",
                    )
                one = stack.enter_context(opened(folder, found.delta, found.files))
                if unknown := one.demand_applicable(content.tensors, demand_wanted):
                    fields = {"version": link.version, "tensors": ", ".join(unknown[:3])}
                    _log.warning(
                        "Delta's tensors left out, the base model lacks them", extra=fields
                    )
                deltas.append(one)
            yield deltas

    def _pointed(self, series: Series, number: int) -> str:
        """Return the run of Stitch's store; raises if a version is beyond its pointer."""
        with self._pointer(series) as pointer:
            if pointer is None:
                return ""
            pointer.demand_published(number)
            return pointer.run

    @contextmanager
    def _pointer(self, series: Series) -> Iterator[Pointer | None]:
        """Read Stitch's pointer, which lies above the versions; its defects inside get its name."""
        if series is not WEIGHTS or self._layouts.root_name != UPDATES:
            yield None
            return
        with self._layouts.open_root(above=True) as above:
            # Stitch writes a file; a link or a folder of this name is another trainer's.
            data = above.text(LATEST, MAX_BYTES)
            with defects_named(above.path / LATEST):
                yield None if data is None else pointer_of(data)


def grouped(links: Sequence[Link], size: int, files: int = FILES_AT_ONCE) -> list[list[Link]]:
    """Return the deltas of each pass: as many as are allowed, with so many files in all."""
    passes: list[list[Link]] = []
    opened = 0
    for link in links:
        # The index stands for the folder, which is open too.
        opened += len(link.files)
        if not passes or len(passes[-1]) == size or opened > files:
            passes.append([])
            opened = len(link.files)
        passes[-1].append(link)
    return passes
