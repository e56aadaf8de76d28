"""Are a tensor's values finite? Decided from samples of raw bytes. Pure.

A failed training run writes NaN over whole tensors, norms among the first. Small tensors are
scanned completely, large ones at a few percent, spread evenly. The test needs no arithmetic:
a float is not finite exactly if all bits of its exponent are one.
"""

from collections.abc import Iterator

_BLOCK = 4096
_BLOCKS = 64
WHOLE_BYTES = _BLOCK * _BLOCKS
"""Up to this size a piece is scanned completely."""
_ALIGNED = 8

_EXPONENTS = {
    "BF16": (2, 0x7F, 0x80),
    "F16": (2, 0x7C, 0),
    "F32": (4, 0x7F, 0x80),
    "F64": (8, 0x7F, 0xF0),
    "F8_E5M2": (1, 0x7C, 0),
    # It has no infinity; its only NaN is all ones, with either sign.
    "F8_E4M3": (1, 0x7F, 0),
    "F8_E8M0": (1, 0xFF, 0),
}
"""Bytes of an element, and the bits of its exponent in the last byte and the one before."""
_MATCHES = {
    mask: bytes(byte & mask == mask for byte in range(256))
    for mask in {top for _, top, _ in _EXPONENTS.values()}
}


def has_odd_values(dtype: str, piece: memoryview) -> bool:
    """Return whether samples of a piece, which begins with an element, hold NaN or infinity."""
    if dtype not in _EXPONENTS:
        return False
    return any(_is_odd(dtype, bytes(piece[begin:end])) for begin, end in _samples(len(piece)))


def _samples(nbytes: int) -> Iterator[tuple[int, int]]:
    if nbytes <= WHOLE_BYTES:
        yield 0, nbytes
        return
    for place in range(_BLOCKS):
        begin = (nbytes - _BLOCK) * place // (_BLOCKS - 1) // _ALIGNED * _ALIGNED
        yield begin, begin + _BLOCK


def _is_odd(dtype: str, data: bytes) -> bool:
    width, top, below = _EXPONENTS[dtype]
    suspects = data[width - 1 :: width].translate(_MATCHES[top])
    place = suspects.find(1)
    while place >= 0:
        if not below or data[place * width + width - 2] & below == below:
            return True
        place = suspects.find(1, place + 1)
    return False
