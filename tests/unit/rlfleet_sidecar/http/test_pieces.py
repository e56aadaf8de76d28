"""Whose request for a piece is answered first."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.http import pieces
from rlfleet_sidecar.sharing.offering import Offering
from rlfleet_sidecar.sharing.pieces import Piece
from rlfleet_sidecar.sharing.shelf import PieceShelf
from rlfleet_sidecar.sharing.turns import PieceTurn

PATH = f"{paths.PIECES_PATH}/step-1/{'0' * 32}/0"


@pytest.fixture
def offering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Offering:
    monkeypatch.setattr(pieces, "WAIT_S", 0.2)
    (tmp_path / "a").write_bytes(b"data")
    return Offering.of_copy("step-1", "0" * 32, [Piece("a", 0, 4)], tmp_path, [], [])


@pytest.fixture
async def client(offering: Offering) -> AsyncIterator[httpx.AsyncClient]:
    app = FastAPI()
    app.include_router(pieces.router)
    app.state.shelf = PieceShelf(lambda _version: offering)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://worker") as made:
        yield made


async def test_a_worker_that_forwards_nothing_is_answered_once_no_other_one_waits(
    offering: Offering, client: httpx.AsyncClient
) -> None:
    other = PieceTurn("10.0.0.2", forwards=True, begin=lambda: None)
    offering.turns.ask(other)

    assert (await client.get(PATH, params={"forwards": "true"})).content == b"data"
    with pytest.raises(SidecarError) as raised:
        await client.get(PATH, params={"forwards": "false"})
    assert raised.value.code is Code.CHECKPOINT_INCOMPLETE

    offering.turns.end(other)
    assert (await client.get(PATH, params={"forwards": "false"})).content == b"data"


async def test_whether_a_worker_forwards_is_known_once_a_piece_was_sent(
    offering: Offering, client: httpx.AsyncClient
) -> None:
    for _ in range(16):
        offering.keep(0)
    assert not offering.forwards

    await client.get(PATH)

    assert offering.forwards


async def test_every_request_leaves_its_place_to_the_next(
    offering: Offering, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    for _ in range(5):
        assert (await client.get(PATH)).content == b"data"
    (tmp_path / "a").unlink()
    for _ in range(5):
        with pytest.raises(SidecarError) as raised:
            await client.get(PATH)
        assert raised.value.code is not Code.CHECKPOINT_INCOMPLETE
