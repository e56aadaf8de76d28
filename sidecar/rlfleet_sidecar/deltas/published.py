"""Reads one published version: its commit file, and the headers of its payload files.

It must stay true that no directory is a full checkpoint only because its index is missing, and
that an identity covers every final checksum, so that a number which is used again has another.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from blake3 import blake3

from rlfleet_contract.engine.safetensors import LENGTH_BYTES, BadHeaderError, FileStamp
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.checkpoints.check import is_marked
from rlfleet_sidecar.checkpoints.folder import Folder, Location
from rlfleet_sidecar.checkpoints.headers import bytes_of, header_of, invalid, refuse_code
from rlfleet_sidecar.deltas.formats import fields, index, manifest
from rlfleet_sidecar.deltas.formats.delta import BadDeltaError, Delta, TornDeltaError
from rlfleet_sidecar.deltas.formats.names import SKYRL, WEIGHTS, Series
from rlfleet_sidecar.deltas.formats.shard import Shard, length_of, shard_of
from rlfleet_sidecar.errors import SidecarError

_SUFFIX = ".safetensors"
_LONE = "model.safetensors"


@dataclass(frozen=True, slots=True)
class Published:
    """A delta, or what is known of a full version before its check."""

    delta: Delta | None
    """None if the version is a full checkpoint."""
    files: tuple[FileStamp, ...] = ()
    """Of a delta: its commit file, then its payload files."""
    identity: str = ""
    """Of a delta: digest of its commit file and of all headers."""
    is_committed: bool = False
    """Whether its index names it: publishers that do so write the index last."""
    digest: str | None = None
    """Of all its tensors, as its publisher had them; None if the publisher wrote none."""


def published_in(
    folders: Sequence[Folder], series: Series, number: int, markers: Sequence[str], deadline: float
) -> Published:
    """Return what a version contains; raises SidecarError, Incomplete while it is written.

    Its directories are given from the outermost to the one with the weights.
    """
    folder = folders[-1]
    names = folder.names()
    if series.commit not in names:
        if not _is_full(folders, series, names, markers, deadline):
            raise SidecarError(
                Code.CHECKPOINT_INCOMPLETE,
                f"{folder.path} has no {series.commit}: it is not complete; wait until its"
                " publisher writes it, which it does last",
            )
        return Published(None)
    # Before its bytes, so that an index which is replaced during the check counts as rewritten.
    stamp = folder.stamp(series.commit)
    data = bytes_of(folder, series.commit)
    with defects_named(folder.path / series.commit):
        _demand_ended(data)
        found = fields.object_of(data)
        if series is WEIGHTS and not index.is_delta(found):
            is_committed = index.is_numbered(found, number)
            digest = index.digest_of(found, number)
            return Published(None, is_committed=is_committed, digest=digest)
        refuse_code(folder)
        reader = _Reader(folder, stamp, data, deadline)
        if series is not WEIGHTS:
            listed = manifest.manifest_of(found, number)
            delta = manifest.delta_of(listed, reader.shards(listed.files))
            return reader.published(delta)
        known = index.index_of(found, number)
        files = sorted(set(known.files.values()))
        if more := sorted({name for name in names if name.endswith(_SUFFIX)} - set(files)):
            raise BadDeltaError(f"does not list {more[0]} next to it; publish the version again")
        delta = index.delta_of(known, reader.shards(files))
        return replace(reader.published(delta), digest=index.digest_of(found, number))


@contextmanager
def defects_named(path: Location) -> Iterator[None]:
    """Turn a delta's defects into problems that name a file."""
    try:
        yield
    except TornDeltaError as error:
        raise SidecarError(Code.CHECKPOINT_INCOMPLETE, f"{path} {error}") from error
    except BadDeltaError as error:
        raise invalid(path, str(error)) from error


class _Reader:
    """Reads payload files' headers, and digests them."""

    def __init__(
        self, folder: Folder, stamp: FileStamp | None, commit: bytes, deadline: float
    ) -> None:
        self._folder = folder
        self._deadline = deadline
        self._digest = blake3(commit)
        self._stamps = [] if stamp is None else [stamp]

    def shards(self, names: Sequence[str]) -> dict[str, Shard]:
        """Return the files' headers by name."""
        return {name: self._shard(name) for name in names}

    def published(self, delta: Delta) -> Published:
        """Return the version, once all its files were read."""
        return Published(delta, tuple(self._stamps), self._digest.hexdigest())

    def _shard(self, name: str) -> Shard:
        if time.monotonic() > self._deadline:
            raise SidecarError(
                Code.CHECKPOINT_UNREADABLE,
                f"reading headers timed out at {self._folder.path / name}; check that the volume"
                " answers",
            )
        if self._folder.stamp(name) is None:
            raise TornDeltaError(f"lists {name}, which does not exist; wait until it is complete")
        with defects_named(self._folder.path / name), self._folder.open(name) as reading:
            size = reading.stamp.size
            try:
                length = length_of(reading.read(min(LENGTH_BYTES, size), 0), size)
                header = reading.read(length, LENGTH_BYTES)
            except BadHeaderError as error:
                raise TornDeltaError(f"{error}; wait until it is complete") from error
            found = shard_of(header, size)
            self._digest.update(header)
            self._stamps.append(reading.stamp)
            return found


def _demand_ended(data: bytes) -> None:
    """Raise if a commit file ends before its last brace, as a copy under way does."""
    if not data.rstrip().endswith(b"}"):
        raise TornDeltaError(f"ends after {len(data)} bytes; wait until it is complete")


def _is_full(
    folders: Sequence[Folder],
    series: Series,
    names: Sequence[str],
    markers: Sequence[str],
    deadline: float,
) -> bool:
    """Return whether a version without a commit file is full, and no delta that is being written.

    A marker says so, as no delta has one; without markers, tensors that no delta has.
    """
    payloads = [name for name in names if name.endswith(_SUFFIX)]
    if series is WEIGHTS and payloads == [_LONE]:
        return True
    is_skyrl = any(name.startswith(SKYRL.payloads) for name in payloads)
    if series is SKYRL and payloads and not is_skyrl:
        return True
    if markers:
        return is_marked(folders, markers)
    return any(_has_weights(folders[-1], name, deadline) for name in payloads)


def _has_weights(folder: Folder, name: str, deadline: float) -> bool:
    """Return whether a file has a tensor that is no delta's; False while it is written."""
    try:
        _, tensors = header_of(folder, name, deadline)
    except SidecarError as error:
        if error.code is Code.CHECKPOINT_INVALID:
            return False
        raise
    return any(tensor.dtype != "U8" or len(tensor.shape) != 1 for tensor in tensors)
