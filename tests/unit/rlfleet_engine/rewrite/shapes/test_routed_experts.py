"""Routed experts: a NumPy file becomes data, shape and type."""

import json
from base64 import b64decode, b64encode

import pytest

from rlfleet_engine.rewrite.rewrite import IncompleteReplyError
from rlfleet_engine.rewrite.shapes.routed_experts import experts_of
from tests.fakes.experts import npy

RECORDED = (
    "k05VTVBZAQB2AHsnZGVzY3InOiAnPGk0JywgJ2ZvcnRyYW5fb3JkZXInOiBGYWxzZSwgJ3NoYXBlJzogKDIs"
    "IDEsIDIpLCB9ICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAg"
    "IAoAAAAAAQAAAAIAAAADAAAA"
)
"""What vLLM's own function writes of ``numpy.arange(4, dtype="int32").reshape(2, 1, 2)``."""


def file_of(data: bytes, shape: tuple[int, ...], descr: str) -> str:
    return b64encode(npy(data, shape, descr)).decode()


def test_what_vllm_writes_is_read() -> None:
    told = experts_of(RECORDED)

    assert told is not None
    assert (told["shape"], told["dtype"]) == ([2, 1, 2], "int32")
    data = b64decode(told["data"])
    assert [int.from_bytes(data[at : at + 4], "little") for at in (0, 4, 8, 12)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("descr", "dtype", "size"), [("|u1", "uint8", 1), ("<u2", "uint16", 2), ("<i4", "int32", 4)]
)
def test_each_type_keeps_its_bytes(descr: str, dtype: str, size: int) -> None:
    data = bytes(range(3 * 2 * 2 * size))

    told = experts_of(file_of(data, (3, 2, 2), descr), start=5)

    assert told is not None
    assert b64decode(told["data"]) == data
    assert json.dumps(told).startswith('{"data": ')
    assert {name: told[name] for name in ("shape", "dtype", "start")} == {
        "shape": [3, 2, 2],
        "dtype": dtype,
        "start": 5,
    }


def test_a_model_without_experts_has_none() -> None:
    assert experts_of(None) is None


@pytest.mark.parametrize(
    "encoded",
    [
        "no base64!",
        b64encode(b"no file").decode(),
        b64encode(b"\x93NUMPY").decode(),
        b64encode(b"\x93NUMPY\x01\x00\x04\x00oops").decode(),
        b64encode(b"\x93NUMPY\x01\x00\x02\x00{}").decode(),
        file_of(bytes(32), (1, 2, 2), "<f8"),
        file_of(bytes(16), (1, 2, 2), ">i4"),
        file_of(bytes(17), (1, 2, 2), "<i4"),
        file_of(bytes(5), (1, 2, 2), "|u1"),
    ],
)
def test_experts_that_cannot_be_read_are_an_error(encoded: str) -> None:
    with pytest.raises(IncompleteReplyError, match="routed experts"):
        experts_of(encoded)
