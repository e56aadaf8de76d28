"""Reads a checked version once, to copy, digest and scan every tensor.

It must stay true that the digested, scanned and staged bytes are the same, and that they
belong to the files whose headers were checked. One thread and chunks of a few MiB, so that
the engine on the same node does not starve.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Self

from rlfleet_contract.engine.safetensors import (
    BLAKE3,
    LENGTH_BYTES,
    Algorithm,
    BadHeaderError,
    Digest,
    FileStamp,
    Tensor,
    header_length,
    parse_header,
)
from rlfleet_sidecar.cache.prepare_job import PrepareJob
from rlfleet_sidecar.checkpoints.check import demand_same
from rlfleet_sidecar.checkpoints.headers import Headers, invalid, read
from rlfleet_sidecar.checkpoints.manifest import Manifest
from rlfleet_sidecar.checkpoints.nan_scan import has_odd_values
from rlfleet_sidecar.checkpoints.safe_paths import OpenFile, OpenFolder, stamp_of

CHUNK_BYTES = 8 * 1024 * 1024


class Staging:
    """Reads one version, and copies it into a draft if there is one."""

    def __init__(
        self,
        folder: OpenFolder,
        content: Headers,
        manifest: Manifest | None,
        work: PrepareJob,
        algorithm: Algorithm = BLAKE3,
    ) -> None:
        self._folder = folder
        self._content = content
        self._manifest = manifest
        self._work = work
        self._digest = Digest(algorithm)
        self._buffer = memoryview(bytearray(CHUNK_BYTES))

    def run(self, draft: Path | None) -> str:
        """Read everything, and copy it into the draft if there is one; returns the digest."""
        self._work.total = sum(stamp.size for stamp in self._content.files)
        for stamp in self._content.files:
            hashed = self._file(stamp, None if draft is None else draft / stamp.name)
            self._compare(stamp.name, hashed)
        if self._manifest is not None:
            loaded = {stamp.name for stamp in self._content.files}
            for name in sorted(self._manifest.hashes.keys() - loaded):
                self._compare(name, self._hash_of(name))
        return self._digest.hexdigest()

    def _file(self, stamp: FileStamp, copy: Path | None) -> str:
        name = stamp.name
        is_hashed = self._manifest is not None
        with self._folder.open(name) as reading, _Sink(copy, is_hashed=is_hashed) as sink:
            demand_same(self._folder, stamp, reading.stamp)
            with _damage_named(self._folder, name):
                self._tensors(reading, sink)
            seen = stamp_of(name, os.fstat(reading.descriptor))
            demand_same(self._folder, stamp, seen)
            return sink.hexdigest()

    def _tensors(self, reading: OpenFile, sink: "_Sink") -> None:
        length = header_length(read(reading, LENGTH_BYTES, 0), reading.stamp.size)
        header = read(reading, LENGTH_BYTES + length, 0)
        sink.take(header)
        self._work.advance(len(header))
        for tensor in parse_header(header[LENGTH_BYTES:], reading.stamp.size):
            if self._content.tensors.get(tensor.name) != tensor:
                raise BadHeaderError(f"tensor {tensor.name} has changed since the check")
            self._tensor(reading, tensor, sink)

    def _tensor(self, reading: OpenFile, tensor: Tensor, sink: "_Sink") -> None:
        hashed = self._digest.algorithm.new()
        for piece in self._pieces(reading, tensor.begin, tensor.nbytes):
            hashed.update(piece)
            if has_odd_values(tensor.dtype, piece):
                raise invalid(
                    self._folder.path / reading.stamp.name,
                    f"contains NaN or infinity in tensor {tensor.name}; resume training from an"
                    " earlier checkpoint",
                )
            sink.take(piece)
            self._work.advance(len(piece))
        self._digest.add(tensor, hashed.digest())

    def _hash_of(self, name: str) -> str:
        """Hash a file that is not loaded, such as config.json."""
        with self._folder.open(name) as reading, _damage_named(self._folder, name):
            hashed = sha256()
            for piece in self._pieces(reading, 0, reading.stamp.size):
                hashed.update(piece)
                self._work.advance(0)
            return hashed.hexdigest()

    def _pieces(self, reading: OpenFile, begin: int, nbytes: int) -> Iterator[memoryview]:
        for start in range(begin, begin + nbytes, CHUNK_BYTES):
            piece = self._buffer[: min(CHUNK_BYTES, begin + nbytes - start)]
            filled = 0
            while filled < len(piece):
                count = os.preadv(reading.descriptor, [piece[filled:]], start + filled)
                if count == 0:
                    raise BadHeaderError(f"file ends after {start + filled} bytes")
                filled += count
            yield piece

    def _compare(self, name: str, hashed: str) -> None:
        if self._manifest is not None:
            self._manifest.demand(name, hashed)


@contextmanager
def _damage_named(folder: OpenFolder, name: str) -> Iterator[None]:
    try:
        yield
    except BadHeaderError as error:
        raise invalid(folder.path / name, f"is damaged: {error}; write it again") from error


class _Sink:
    """Hashes the bytes of one file, and writes them if there is a copy."""

    def __init__(self, path: Path | None, *, is_hashed: bool) -> None:
        self._file = None if path is None else path.open("xb", buffering=0)
        self._hash = sha256() if is_hashed else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def take(self, piece: bytes | memoryview) -> None:
        if self._hash is not None:
            self._hash.update(piece)
        rest = memoryview(piece)
        while self._file is not None and rest:
            rest = rest[self._file.write(rest) :]

    def hexdigest(self) -> str:
        return "" if self._hash is None else self._hash.hexdigest()
