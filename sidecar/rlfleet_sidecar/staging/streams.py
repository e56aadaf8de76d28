"""What consumes the bytes of a file in order: its header, each tensor, its hash.

A stream is used by one thread at a time, which gives it the bytes from ``place`` on.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from rlfleet_contract.engine.safetensors import (
    LENGTH_BYTES,
    BadHeaderError,
    Digest,
    Tensor,
    header_length,
    parse_header,
)
from rlfleet_sidecar.checkpoints.folder import Location
from rlfleet_sidecar.checkpoints.headers import Headers, invalid
from rlfleet_sidecar.checkpoints.manifest import FileHash, Manifest
from rlfleet_sidecar.checkpoints.nan_scan import has_odd_values, has_values


class Stream(Protocol):
    """A range of a file's bytes that is consumed in order."""

    place: int
    """The next byte."""
    end: int
    is_taken: bool
    """Whether a thread has it, will take it, or has ended it."""
    is_counted: bool
    """Whether its bytes are progress: each byte of a version once."""

    def take(self, piece: memoryview) -> None:
        """Consume the next bytes; raises if they are not accepted."""
        ...

    def follow(self) -> "Sequence[Stream]":
        """Return what is to be consumed after its end, itself included if it continues."""
        ...


class HeaderStream:
    """The header of a safetensors file, which must be the checked one."""

    is_counted = True

    def __init__(self, size: int, content: Headers, made: Callable[[Tensor], Stream]) -> None:
        self.place, self.end, self.is_taken = 0, LENGTH_BYTES, False
        self._size = size
        self._content = content
        self._made = made
        self._bytes = bytearray()

    def take(self, piece: memoryview) -> None:
        """Keep the bytes."""
        self._bytes += piece

    def follow(self) -> Sequence[Stream]:
        """Return the tensors, once the header is whole."""
        length = header_length(bytes(self._bytes[:LENGTH_BYTES]), self._size)
        if self.end < LENGTH_BYTES + length:
            self.end = LENGTH_BYTES + length
            return [self]
        tensors = parse_header(bytes(self._bytes[LENGTH_BYTES:]), self._size)
        for tensor in tensors:
            if self._content.tensors.get(tensor.name) != tensor:
                raise BadHeaderError(f"tensor {tensor.name} has changed since the check")
        return [self._made(tensor) for tensor in tensors]


class FileValues:
    """Whether a file's matrices hold more than zeros.

    Of a file that a crash left without its bytes, size and header may be those of a good one.
    Vectors do not count: some models begin with biases and norms of zeros.
    """

    def __init__(self, where: Location) -> None:
        self._where = where
        self._has_matrix = False
        self._has_values = False

    def look(self, piece: memoryview) -> None:
        """Look at a piece of a matrix."""
        self._has_matrix = True
        if not self._has_values and has_values(piece):
            self._has_values = True

    def demand(self) -> None:
        """Raise if all that was looked at is zero."""
        if self._has_matrix and not self._has_values:
            raise invalid(
                self._where, "holds only zeros: its tensors were never written; write it again"
            )


class TensorStream:
    """One tensor: digested, and looked at for NaN and infinity."""

    is_counted = True

    def __init__(self, tensor: Tensor, digest: Digest, where: Location, values: FileValues) -> None:
        self.place, self.end, self.is_taken = tensor.begin, tensor.begin + tensor.nbytes, False
        self._tensor = tensor
        self._digest = digest
        self._where = where
        self._values = values
        self._hash = digest.algorithm.new()

    def take(self, piece: memoryview) -> None:
        """Digest the bytes; raises if one of their values is not finite."""
        self._hash.update(piece)
        if len(self._tensor.shape) > 1:
            self._values.look(piece)
        if has_odd_values(self._tensor.dtype, piece):
            raise invalid(
                self._where,
                f"contains NaN or infinity in tensor {self._tensor.name}; resume training from an"
                " earlier checkpoint",
            )

    def follow(self) -> Sequence[Stream]:
        """Add it to the checkpoint's digest."""
        self._digest.add(self._tensor, self._hash.digest())
        return ()


class FileStream:
    """A whole file, whose hash a manifest lists."""

    is_counted = False

    def __init__(self, name: str, size: int, manifest: Manifest) -> None:
        self.place, self.end, self.is_taken = 0, size, False
        self._hash = FileHash(manifest, name)

    def take(self, piece: memoryview) -> None:
        """Hash the bytes."""
        self._hash.update(piece)

    def follow(self) -> Sequence[Stream]:
        """Raise if the manifest lists another hash."""
        self._hash.demand()
        return ()
