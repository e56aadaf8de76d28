"""NaN and infinities are found in raw bytes as by a processor."""

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlfleet_sidecar.checkpoints.nan_scan import has_odd_values


def seen(dtype: str, data: bytes) -> bool:
    return has_odd_values(dtype, memoryview(data))


def one(dtype: str, data: bytes) -> float:
    """Read a value by another way: widened to float64 by Python itself."""
    match dtype:
        case "BF16":
            return float(struct.unpack("<f", b"\0\0" + data)[0])
        case "F16":
            return float(struct.unpack("<e", data)[0])
        case "F8_E5M2":
            return float(struct.unpack("<e", b"\0" + data)[0])
        case "F32":
            return float(struct.unpack("<f", data)[0])
        case _:
            return float(struct.unpack("<d", data)[0])


@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_each_two_byte_value_is_classified_correctly(dtype: str) -> None:
    for value in range(1 << 16):
        data = value.to_bytes(2, "little")
        assert seen(dtype, data) == (not math.isfinite(one(dtype, data))), hex(value)


def test_each_one_byte_value_is_classified_correctly() -> None:
    for value in range(256):
        data = bytes([value])
        assert seen("F8_E5M2", data) == (not math.isfinite(one("F8_E5M2", data)))
        assert seen("F8_E4M3", data) == (value & 0x7F == 0x7F)
        assert seen("F8_E8M0", data) == (value == 0xFF)


@pytest.mark.parametrize(("dtype", "width"), [("F32", 4), ("F64", 8), ("BF16", 2)])
@given(data=st.binary(min_size=8, max_size=64))
def test_any_value_anywhere_in_a_piece_is_seen(dtype: str, width: int, data: bytes) -> None:
    data = data[: len(data) // 8 * 8]
    values = [one(dtype, data[at : at + width]) for at in range(0, len(data), width)]

    assert seen(dtype, data) == (not all(map(math.isfinite, values)))


@pytest.mark.parametrize("dtype", ["I8", "U16", "I64", "BOOL"])
def test_integers_are_always_finite(dtype: str) -> None:
    assert not seen(dtype, b"\xff" * 64)


@pytest.mark.parametrize("place", [0, 4096, 123_456, (1 << 20) - 4])
@pytest.mark.parametrize("odd", [math.nan, -math.nan, math.inf, -math.inf])
def test_one_value_anywhere_in_a_large_piece_is_seen(place: int, odd: float) -> None:
    data = bytearray(struct.pack("<f", -1.5) * (1 << 18))
    assert not seen("F32", bytes(data))

    data[place : place + 4] = struct.pack("<f", odd)

    assert seen("F32", bytes(data))


def test_no_bytes_are_finite() -> None:
    assert not seen("BF16", b"")
