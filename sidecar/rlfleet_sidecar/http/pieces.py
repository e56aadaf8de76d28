"""The routes by which workers ask one another for pieces of versions.

It must stay true that a request names a version, an edition and a number, and never a file.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.supply import EDITION_PATTERN, Holding
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.sharing.offering import Offering
from rlfleet_sidecar.sharing.shelf import PieceShelf
from rlfleet_sidecar.sharing.turns import PieceTurn
from rlfleet_sidecar.timeouts import in_thread

WAIT_S = 0.5
"""How long a request waits for a piece that is on its way, and for its turn."""
_MOST_PIECES = 1 << 24
router = APIRouter()


class _Sending(StreamingResponse):
    """Calls ``ended`` once all is sent, or the receiver is gone."""

    def __init__(self, *arguments: Any, ended: Callable[[], None], **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()


async def _offering(
    request: Request,
    version: Annotated[str, Path(pattern=paths.VERSION_PATTERN)],
    edition: Annotated[str, Path(pattern=EDITION_PATTERN)],
) -> Offering:
    shelf: PieceShelf = request.app.state.shelf
    return await in_thread(partial(shelf.find, version, edition))


_Shared = Annotated[Offering, Depends(_offering)]


@router.get(paths.PIECES_PATH + "/{version}/{edition}")
async def holding(
    shared: _Shared, first: Annotated[int, Query(ge=0, le=_MOST_PIECES)] = 0
) -> Holding:
    """Return what this worker has of a version that it shares.

    ``first`` is the number of the piece of the first hash; a worker that does not read the store
    sends none.
    """
    return shared.holding(first)


@router.get(paths.PIECES_PATH + "/{version}/{edition}/{number}")
async def piece(
    request: Request,
    shared: _Shared,
    number: Annotated[int, Path(ge=0, le=_MOST_PIECES)],
    *,
    forwards: bool = True,
) -> Response:
    """Return the bytes of one piece, or 425 if half a second brings neither it nor a turn.

    ``forwards`` says whether the worker that asks sends pieces to others.
    """
    if number >= len(shared.pieces):
        raise SidecarError(
            Code.INVALID_REQUEST,
            f"{shared.version} has no piece {number} (expected 0 to {len(shared.pieces) - 1})",
        )
    may_send = asyncio.Event()
    turn = PieceTurn(request.client.host if request.client else "", forwards, may_send.set)
    try:
        async with asyncio.timeout(WAIT_S):
            await shared.until_kept(number)
            shared.turns.ask(turn)
            await may_send.wait()
        chunks = await in_thread(partial(shared.opened, number))
    except TimeoutError as error:
        shared.turns.end(turn)
        raise SidecarError(
            Code.CHECKPOINT_INCOMPLETE,
            f"piece {number} of {shared.version} cannot be sent yet; ask again",
        ) from error
    except BaseException:
        shared.turns.end(turn)
        raise
    found = shared.pieces[number]
    return _Sending(
        chunks,
        media_type="application/octet-stream",
        headers={"content-length": str(found.end - found.begin)},
        ended=partial(_ended, shared, turn),
    )


def _ended(shared: Offering, turn: PieceTurn) -> None:
    shared.sent()
    shared.turns.end(turn)
