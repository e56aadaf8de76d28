"""The checksums that publishers write over each new tensor. Pure."""

import zlib
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Protocol

from blake3 import blake3
from xxhash import xxh3_128

from rlfleet_sidecar.deltas.formats.delta import BadDeltaError


class Hash(Protocol):
    """A checksum under way."""

    def update(self, data: Any, /) -> object:
        """Add bytes."""

    def hexdigest(self) -> str:
        """Return the checksum of the bytes so far, as its publisher writes it."""


class _Adler32:
    def __init__(self) -> None:
        self._value = 1

    def update(self, data: Any, /) -> None:
        self._value = zlib.adler32(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


_ALGORITHMS: dict[str, tuple[Callable[[], Hash], int]] = {
    "xxh3-128": (xxh3_128, 32),
    "blake3": (blake3, 64),
    "adler32": (_Adler32, 8),
    "sha256": (sha256, 64),
}
"""How each begins, and how many hexadecimal digits it has. SHA-256 is SkyRL's first form."""
_DIGITS = frozenset("0123456789abcdef")


def new(algorithm: str) -> Hash:
    """Begin a checksum."""
    return _ALGORITHMS[algorithm][0]()


def demand_known(algorithm: str, field: str) -> str:
    """Return the algorithm's name; raises if it is unknown."""
    if algorithm not in _ALGORITHMS:
        known = ", ".join(_ALGORITHMS)
        raise BadDeltaError(
            f"has {field} {algorithm[:32]!r}, expected one of {known}; publish with one of them"
        )
    return algorithm


def demand_form(checksum: object, algorithm: str, tensor: str) -> str:
    """Return a checksum; raises if it cannot be one of this algorithm."""
    digits = _ALGORITHMS[algorithm][1]
    if not isinstance(checksum, str) or len(checksum) != digits or not _DIGITS.issuperset(checksum):
        raise BadDeltaError(
            f"has checksum {str(checksum)[:80]!r} of tensor {tensor}, expected {digits} lower-case"
            f" hexadecimal digits of {algorithm}; publish it again"
        )
    return checksum
