"""One tensor's change as a payload: its bytes XOR the last version's, or the changed bytes.

Works in pieces, so that it needs no second copy of a tensor. The format names one encoding for a
whole version: each tensor is encoded in both, and the version takes the smaller sum.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from tempfile import SpooledTemporaryFile
from typing import Any

import numpy as np
import xxhash
import zstandard
from blake3 import blake3

from rlfleet.publish.tensors import TensorBytes
from rlfleet_contract.engine.safetensors import BLAKE3

XOR, OVERWRITE = "xor", "overwrite"
CHECKSUMS: dict[str, Callable[[], Any]] = {"xxh3-128": xxhash.xxh3_128, "blake3": blake3}
_LEVEL = 1
_PIECE = 4 * 2**20
_IN_MEMORY = 64 * 2**20
_LARGEST_POSITION = 2**32
_TRIED = 64 * 2**20
"""After so many changed tensors' bytes the larger encoding is given up."""
_THREADED = 16 * 2**20
"""From this size on a tensor is compressed by several threads."""
_SPARSE = 8
"""Overwriting one byte costs five: not tried where more than one in so many changed."""


@dataclass
class Payloads:
    """The payloads of one version in one encoding: in memory, and in a file when they grow."""

    folder: str | None
    sizes: dict[str, int] = field(default_factory=dict)
    total: int = 0

    def __post_init__(self) -> None:
        self._file = SpooledTemporaryFile(_IN_MEMORY, dir=self.folder)  # noqa: SIM115 - close does
        self._begins: dict[str, int] = {}

    def begin(self, name: str) -> None:
        """Begin the payload of a tensor."""
        self._begins[name] = self.total
        self.sizes[name] = 0

    def add(self, name: str, data: bytes) -> None:
        """Append to the payload that was begun last."""
        self._file.write(data)
        self.sizes[name] += len(data)
        self.total += len(data)

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield a payload."""
        self._file.seek(self._begins[name])
        left = self.sizes[name]
        while left:
            piece = self._file.read(min(_PIECE, left))
            left -= len(piece)
            yield piece

    def close(self) -> None:
        """Forget all of them."""
        self._file.close()


class Changes:
    """The changed tensors of one version, in each encoding that is tried."""

    def __init__(
        self, encodings: tuple[str, ...], checksum: str, folder: str | None, threads: int
    ) -> None:
        self._new_hash = CHECKSUMS[checksum]
        self._compressors = (_compressor(0), _compressor(threads))
        self._tried = 0
        self._payloads = {encoding: Payloads(folder) for encoding in encodings}
        self.checksums: dict[str, str] = {}
        self.hashes: dict[str, bytes] = {}
        """Of each changed tensor, for the version's digest."""

    def add(self, name: str, old: TensorBytes, new: TensorBytes) -> None:
        """Record what changed in a tensor, and make the old bytes the new ones."""
        if not _differs(old, new):
            return
        if OVERWRITE in self._payloads:
            self._overwrite(name, old, new)
        xor = self._payloads.get(XOR)
        own = BLAKE3.new()
        hashed = own if self._new_hash is BLAKE3.new else self._new_hash()
        packer = self._packer(new.size)
        if xor is not None:
            xor.begin(name)
        for begin in range(0, new.size, _PIECE):
            piece = slice(begin, begin + _PIECE)
            _feed({hashed, own}, new[piece].data)
            if xor is not None:
                xor.add(name, packer.compress(np.bitwise_xor(old[piece], new[piece]).data))
            old[piece] = new[piece]
        if xor is not None:
            xor.add(name, packer.flush())
        self.checksums[name] = hashed.hexdigest()
        self.hashes[name] = own.digest()
        self._tried += new.size
        if self._tried >= _TRIED:
            self._keep_the_smallest()

    def _keep_the_smallest(self) -> None:
        best = self.best()
        for encoding in [*self._payloads]:
            if best is None or encoding != best[0]:
                self._payloads.pop(encoding).close()

    def best(self) -> tuple[str, Payloads] | None:
        """Return the encoding with the fewest bytes, and its payloads; None if none can say it."""
        return min(self._payloads.items(), key=lambda item: item[1].total, default=None)

    def close(self) -> None:
        """Forget all payloads."""
        for payloads in self._payloads.values():
            payloads.close()

    def _packer(self, size: int) -> Any:
        return self._compressors[size >= _THREADED].compressobj(size=size)

    def _overwrite(self, name: str, old: TensorBytes, new: TensorBytes) -> None:
        """Encode as overwritten bytes; without XOR to fall back to, whatever it costs."""
        limit = new.size // _SPARSE if XOR in self._payloads else new.size
        positions = _positions(old, new, limit) if new.size <= _LARGEST_POSITION else None
        if positions is None:
            self._payloads.pop(OVERWRITE).close()
            return
        payloads = self._payloads[OVERWRITE]
        payloads.begin(name)
        packer = self._packer(4 + 5 * positions.size)
        payloads.add(name, packer.compress(positions.size.to_bytes(4, "little")))
        payloads.add(name, packer.compress(positions.tobytes()))
        payloads.add(name, packer.compress(new[positions].tobytes()))
        payloads.add(name, packer.flush())


def _feed(hashes: Iterable[Any], data: memoryview) -> None:
    for one in hashes:
        one.update(data)


def _compressor(threads: int) -> zstandard.ZstdCompressor:
    return zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True, threads=threads)


def _differs(old: TensorBytes, new: TensorBytes) -> bool:
    pieces = (slice(begin, begin + _PIECE) for begin in range(0, new.size, _PIECE))
    return any(not np.array_equal(old[piece], new[piece]) for piece in pieces)


def _positions(old: TensorBytes, new: TensorBytes, limit: int) -> Any:
    """Return where bytes differ, ascending, as u32; None if more than the limit do."""
    found = []
    count = 0
    for begin in range(0, new.size, _PIECE):
        piece = slice(begin, begin + _PIECE)
        here = np.flatnonzero(old[piece] != new[piece])
        count += here.size
        if count > limit:
            return None
        found.append((here + begin).astype("<u4"))
    return np.concatenate(found)
