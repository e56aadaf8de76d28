"""Makes a delta's files: those of the start, changed by the fragments of several deltas.

Every tensor is read once, changed by its fragments in the order of their versions, hashed and
written once. It must stay true that each changed tensor has the last checksum that its publisher
wrote, that every other byte is the start's, and that the start itself is never written.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rlfleet_contract.engine.safetensors import (
    LENGTH_BYTES,
    Tensor,
    header_length,
    parse_header,
)
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.checkpoints.check import demand_same
from rlfleet_sidecar.checkpoints.folder import Folder, Location, Reading
from rlfleet_sidecar.checkpoints.headers import Headers, damage_named, invalid
from rlfleet_sidecar.checkpoints.safe_paths import OpenFile
from rlfleet_sidecar.deltas.formats import checksums
from rlfleet_sidecar.deltas.formats.delta import Fragment
from rlfleet_sidecar.deltas.memory import MemoryBudget
from rlfleet_sidecar.deltas.open_delta import OpenDelta
from rlfleet_sidecar.deltas.published import defects_named
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.staging.crew import Crew
from rlfleet_sidecar.staging.range_copy import STEP, RangeCopy, write_at
from rlfleet_sidecar.staging.source import Done

_PIECE = 1024 * 1024
"""Fits the processor's cache: each piece is changed, hashed and written while it is there."""
Pass = Callable[[], AbstractContextManager[Sequence[OpenDelta]]]
"""Opens the deltas of one pass, in the order of their versions."""
_Job = Callable[[RangeCopy], None]


class FoldedSource:
    """Makes the files of a delta; a source (staging/source.py)."""

    def __init__(
        self,
        start: Folder,
        content: Headers,
        passes: Sequence[Pass],
        threads: int,
        where: Location,
    ) -> None:
        self._start = start
        self._content = content
        """Of the start, whose files and tensors the target has."""
        self._passes = passes
        self._threads = threads
        self._where = where
        """The directory of the delta, for messages."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """The files, with their bytes."""
        return {stamp.name: stamp.size for stamp in self._content.files}

    def where(self, name: str) -> Location:
        """Return the path that a file would have in the delta's directory."""
        return self._where / name

    def fill(self, draft: Path, done: Done) -> None:
        """Write the files; raises SidecarError if a checksum is not the expected one."""
        with self._opened(draft) as files:
            for place, opened in enumerate(self._passes):
                with opened() as deltas:
                    changes = _Changes(deltas, self._content)
                    run = _Run(files, changes, done, is_first=place == 0)
                    run.is_last = place == len(self._passes) - 1
                    with Crew("rlfleet-delta") as crew:
                        crew.start(self._threads, partial(run.work, crew))

    @contextmanager
    def _opened(self, draft: Path) -> Iterator[Sequence["_File"]]:
        """Open the start's files, which must be the checked ones until the end."""
        files: list[_File] = []
        with ExitStack() as stack:
            for stamp in self._content.files:
                reading = stack.enter_context(self._start.open(stamp.name))
                demand_same(self._start, stamp, reading.stamp)
                target = draft / stamp.name
                with target.open("xb") as made:
                    made.truncate(stamp.size)
                path = self._start.path / stamp.name
                files.append(_File(reading, path, target, self._tensors(reading)))
            yield files
            for file in files:
                demand_same(self._start, file.start.stamp, file.start.now())

    def _tensors(self, reading: Reading) -> tuple[Tensor, ...]:
        """Return a file's tensors in their order; they must be the checked ones."""
        path, size = self._start.path / reading.stamp.name, reading.stamp.size
        with damage_named(path):
            length = header_length(reading.read(LENGTH_BYTES, 0), size)
            tensors = parse_header(reading.read(length, LENGTH_BYTES), size)
        if any(self._content.tensors.get(tensor.name) != tensor for tensor in tensors):
            raise invalid(path, "has changed since its check; keep its directory unchanged")
        return tensors


class _File(NamedTuple):
    """One file of the start and of the target."""

    start: Reading
    path: Location
    """Of the start's."""
    target: Path
    tensors: tuple[Tensor, ...]


class _Changes:
    """The fragments of one pass by tensor, in the order of their versions."""

    def __init__(self, deltas: Sequence[OpenDelta], content: Headers) -> None:
        self._found: dict[str, list[tuple[OpenDelta, Fragment]]] = {}
        for one in deltas:
            for name, fragment in one.delta.fragments.items():
                # SkyRL's may hold a tied head, which the base model lacks.
                if name in content.tensors:
                    self._found.setdefault(name, []).append((one, fragment))

    def of(self, tensor: str) -> Sequence[tuple[OpenDelta, Fragment]]:
        return self._found.get(tensor, ())


class _Run:
    """One pass over all files, in several threads."""

    def __init__(
        self, files: Sequence[_File], changes: _Changes, done: Done, *, is_first: bool
    ) -> None:
        self._changes = changes
        self._done = done
        self._is_first = is_first
        """Whether the tensors are still to be read from the start; later ones from the draft."""
        self.is_last = False
        """Whether what is written now stays so."""
        self._lock = threading.Lock()
        self._memory = MemoryBudget()
        self._jobs = (job for file in files for job in self._of(file))

    def work(self, crew: Crew) -> None:
        """Carry out jobs until none is left."""
        copier = RangeCopy()
        while crew.error is None:
            with self._lock:
                job = next(self._jobs, None)
            if job is None:
                return
            job(copier)

    def _of(self, file: _File) -> Iterator[_Job]:
        begin = 0
        for tensor in file.tensors:
            if self._changes.of(tensor.name):
                yield self._range(file, begin, tensor.begin)
                yield self._tensor(file, tensor)
                begin = tensor.begin + tensor.nbytes
        yield self._range(file, begin, file.start.stamp.size)

    def _range(self, file: _File, begin: int, end: int) -> _Job:
        return lambda copier: self._keep(file, begin, end, copier)

    def _tensor(self, file: _File, tensor: Tensor) -> _Job:
        needed = sum(one.memory(fragment) for one, fragment in self._changes.of(tensor.name))

        def change(_: RangeCopy) -> None:
            with self._memory.taken(needed):
                self._change(file, tensor)

        return change

    def _keep(self, file: _File, begin: int, end: int, copier: RangeCopy) -> None:
        """Bring a range that this pass does not change into the target."""
        with _opened(file.target) as target, damage_named(file.path):
            while begin < end:
                count = min(STEP, end - begin)
                if self._is_first:
                    count = copier.copy(file.start, target, begin, count)
                self._report(file, begin, count)
                begin += count

    def _change(self, file: _File, tensor: Tensor) -> None:
        steps = self._changes.of(tensor.name)
        patches = [one.begun(fragment, tensor.nbytes) for one, fragment in steps]
        last, fragment = steps[-1]
        hashed = checksums.new(fragment.algorithm)
        buffer = np.empty(min(_PIECE, tensor.nbytes), np.uint8)
        with _opened(file.target) as target, damage_named(file.path):
            source = file.start if self._is_first else OpenFile(target, file.start.stamp)
            for begin in range(0, tensor.nbytes, _PIECE):
                piece = buffer[: min(_PIECE, tensor.nbytes - begin)]
                source.fill(piece.data, tensor.begin + begin)
                for path, patch in patches:
                    with defects_named(path):
                        patch.apply(piece, begin)
                hashed.update(piece)
                write_at(target, piece.data, tensor.begin + begin)
                self._report(file, tensor.begin + begin, len(piece))
        for path, patch in patches:
            with defects_named(path):
                patch.finish()
        if hashed.hexdigest() != fragment.checksum:
            raise SidecarError(
                Code.DIGEST_MISMATCH,
                f"{last.path / fragment.file} makes tensor {tensor.name} with {fragment.algorithm}"
                f" {hashed.hexdigest()}, expected {fragment.checksum}; check that its publisher"
                " began with this fleet's base model",
            )

    def _report(self, file: _File, begin: int, count: int) -> None:
        """Report bytes if they stay so; else only ask whether the work is still wanted."""
        self._done(file.start.stamp.name, begin, begin + count if self.is_last else begin)


@contextmanager
def _opened(target: Path) -> Iterator[int]:
    """Open a file of the draft; each thread needs a descriptor of its own."""
    descriptor = os.open(target, os.O_RDWR | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
