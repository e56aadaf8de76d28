"""A reader that is lost is replaced, and a worker without one reads for itself."""

import asyncio
import logging

import pytest

from rlfleet_contract.worker.supply import Holding, Supply
from rlfleet_sidecar.sharing import feed
from tests.contract.sharing.fleet import (
    PIECE,
    SAMPLE,
    Fleet,
    Senders,
    behind,
    from_store,
)
from tests.contract.sharing.senders import ScriptedSender


@pytest.mark.parametrize("fleet", [3], indirect=True)
@pytest.mark.usefixtures("loses_readers")
async def test_a_lost_reader_is_replaced_by_the_first_that_succeeds_it(
    fleet: Fleet, senders: Senders, caplog: pytest.LogCaptureFixture
) -> None:
    pieces = fleet.pieces()
    known = ScriptedSender(pieces).holding(0).hashes[:2]
    reader = senders.add(hashes=known, held=2)
    second = Supply(readers=(reader.address,), senders=(reader.address,), succeeds=True)
    first = fleet.address(1)
    third = Supply(readers=(reader.address, first), senders=(first, reader.address))
    caplog.set_level(logging.INFO)
    calls = [asyncio.create_task(fleet.prepare(n, one)) for n, one in ((1, second), (2, third))]
    async with asyncio.timeout(20):
        while not {0, 1} <= set(reader.asked):  # noqa: ASYNC110 - another thread asks
            await asyncio.sleep(0.01)

    reader.is_gone = True
    await asyncio.gather(*calls)

    assert fleet.is_right(1)
    assert fleet.is_right(2)
    read = sum(len(data) for data in pieces[2:]) + 2 * SAMPLE
    assert from_store(caplog)[0] <= read + 2 * PIECE
    assert from_store(caplog)[1] == 0
    reply = await fleet.get(1, fleet.path())
    assert None not in Holding.model_validate_json(reply.content).hashes


@pytest.mark.usefixtures("impatient")
async def test_a_worker_without_any_reader_left_reads_for_itself_and_vouches_for_nothing(
    fleet: Fleet, senders: Senders
) -> None:
    gone = senders.add(is_gone=True)

    await fleet.prepare(1, behind(gone))

    assert fleet.is_right(1)
    found = Holding.model_validate_json((await fleet.get(1, fleet.path())).content)
    assert (found.held, found.reads, found.hashes) == (len(fleet.pieces()), False, [])


async def test_a_late_worker_reads_the_store_at_once_if_no_holder_has_read_it(
    fleet: Fleet, senders: Senders, monkeypatch: pytest.MonkeyPatch
) -> None:
    for patience in ("START_S", "_LOST_S"):
        monkeypatch.setattr(feed, patience, 1e6)
    holder = senders.add(reads=False)

    await fleet.prepare(1, behind(holder, succeeds=True))

    assert fleet.is_right(1)
    found = Holding.model_validate_json((await fleet.get(1, fleet.path())).content)
    assert len(found.hashes) == len(fleet.pieces())
    assert holder.asked == {}
