"""Are a tensor's values finite, and are there any? Decided from raw bytes, all of them. Pure.

The test needs no floating point: a float is not finite exactly if all bits of its exponent are
one, and those are the largest of its integers, with either sign. Two reductions over bytes that
the processor's cache holds cost less than a look at samples in Python.
"""

import numpy as np

_LIMITS = {
    "BF16": (np.int16, 0x7F80, np.uint16, 0xFF80),
    "F16": (np.int16, 0x7C00, np.uint16, 0xFC00),
    "F32": (np.int32, 0x7F80_0000, np.uint32, 0xFF80_0000),
    "F64": (np.int64, 0x7FF0_0000_0000_0000, np.uint64, 0xFFF0_0000_0000_0000),
    "F8_E5M2": (np.int8, 0x7C, np.uint8, 0xFC),
    # It has no infinity; its only NaN is all ones, with either sign.
    "F8_E4M3": (np.int8, 0x7F, np.uint8, 0xFF),
    # It has no sign.
    "F8_E8M0": (np.uint8, 0xFF, np.uint8, 0xFF),
}
"""From which integer on a positive value is not finite, and a negative one."""


def has_odd_values(dtype: str, piece: memoryview) -> bool:
    """Return whether a piece of whole elements holds NaN or infinity."""
    if dtype not in _LIMITS or not piece:
        return False
    signed, positive, unsigned, negative = _LIMITS[dtype]
    is_odd = np.frombuffer(piece, signed).max() >= positive
    return bool(is_odd or np.frombuffer(piece, unsigned).max() >= negative)


def has_values(piece: memoryview) -> bool:
    """Return whether a piece holds a byte that is not zero."""
    return bool(np.frombuffer(piece, np.uint8).any())
