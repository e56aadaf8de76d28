"""A body costs time in proportion to its size: the same loop answers heartbeats and probes."""

import time

import pytest
from fastapi import Request
from pydantic import BaseModel

from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.http.request_body import Parsed

PIECE = b" " * 65536
MANY = 512


class Empty(BaseModel):
    """Nothing but what is around it."""


def sent(pieces: int) -> Request:
    left = iter([*[PIECE] * pieces, b"{}"])

    async def receive() -> dict[str, object]:
        piece = next(left, None)
        return {"type": "http.request", "body": piece or b"", "more_body": piece is not None}

    return Request({"type": "http", "method": "POST", "headers": []}, receive)


async def test_a_large_body_is_read_in_time_that_grows_with_its_size() -> None:
    begun = time.process_time()
    await Parsed(Empty, limit=1 << 30)(sent(MANY))

    # Two thirds of a second and more, where each piece copied all before it.
    assert time.process_time() - begun < 0.4


async def test_a_body_above_the_limit_is_refused() -> None:
    with pytest.raises(SidecarError, match="at most 65536 bytes") as caught:
        await Parsed(Empty, limit=len(PIECE))(sent(2))
    assert caught.value.code is Code.INVALID_REQUEST
