"""Workers forward a version to one another, and only that version."""

import asyncio
import logging
import shutil

import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code, Problem
from rlfleet_contract.worker.supply import Holding, Supply
from tests.contract.sharing.fleet import (
    SAMPLE,
    VERSION,
    Fleet,
    Senders,
    behind,
    from_store,
)
from tests.contract.sharing.senders import ScriptedSender
from tests.fakes.checkpoints import write_version


@pytest.mark.parametrize("fleet", [3], indirect=True)
async def test_a_version_is_read_once_and_is_the_same_everywhere(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    plan = fleet.planned()
    assert [len(supply.readers) for supply in plan] == [0, 1, 2]

    reports = await asyncio.gather(*(fleet.prepare(n, one) for n, one in enumerate(plan)))

    assert {report.prepared for report in reports} == {VERSION}
    assert all(fleet.is_right(n) for n in range(3))
    total = sum(stamp.size for stamp in fleet.stamps())
    samples = SAMPLE * len(fleet.pieces())
    assert sorted(from_store(caplog)) == [samples, samples, total]


async def test_a_late_worker_takes_all_from_a_staged_copy(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    await fleet.prepare(0, Supply())
    shutil.rmtree(fleet.workers[0]._scratch / "state")  # noqa: SLF001 - not needed for a copy
    await fleet.workers[0].stop_sidecar()
    (fleet.workers[0]._scratch / "state").mkdir()  # noqa: SLF001
    await fleet.workers[0].start_sidecar()
    caplog.set_level(logging.INFO)

    await fleet.prepare(1, Supply(readers=(fleet.address(0),), senders=(fleet.address(0),)))

    assert fleet.is_right(1)
    assert from_store(caplog) == [0]


async def test_a_newer_prepare_ends_one_that_waits_for_others(
    fleet: Fleet, senders: Senders
) -> None:
    waiting = senders.add(hashes=[None], held=0)
    before = asyncio.create_task(fleet.ask(1, behind(waiting)))
    async with asyncio.timeout(20):
        while (await fleet.workers[1].report()).progress is None:  # noqa: ASYNC110 - it is remote
            await asyncio.sleep(0.02)

    report = await fleet.prepare(1, None, "step-1")

    assert report.prepared == "step-1"
    assert Problem.model_validate_json((await before).content).code is Code.BUSY
    assert (await fleet.get(1, fleet.path())).status_code == 404


async def test_a_piece_is_forwarded_before_the_version_is_whole(
    fleet: Fleet, senders: Senders
) -> None:
    pieces = fleet.pieces()
    reader = senders.add(hashes=ScriptedSender(pieces).holding(0).hashes[:1], held=1)
    call = asyncio.create_task(fleet.prepare(1, behind(reader)))
    async with asyncio.timeout(20):
        while (reply := await fleet.get(1, f"{fleet.path()}/0")).status_code != 200:
            assert reply.status_code in {404, 425}
            await asyncio.sleep(0.02)

    assert reply.content == pieces[0]
    assert (await fleet.get(1, f"{fleet.path()}/1")).status_code == 425
    found = Holding.model_validate_json((await fleet.get(1, fleet.path())).content)
    assert (found.held, found.hashes) == (1, [])
    assert (await fleet.workers[1].report()).staged == []

    reader.hashes = None
    reader.held = None
    await call
    assert fleet.is_right(1)


async def test_only_pieces_of_an_ordered_version_are_sent_and_only_with_the_token(
    fleet: Fleet,
) -> None:
    await fleet.prepare(0, None, "step-1")
    await fleet.prepare(0, Supply())
    path, count = fleet.path(), len(fleet.pieces())

    answers = {
        asked: (await fleet.get(0, asked)).status_code
        for asked in (
            f"{path}/0",
            f"{path}/{count}",
            f"{path}/-1",
            f"{path}/model.safetensors",
            f"{path}/..%2f..%2fstate%2fjournal",
            f"{paths.PIECES_PATH}/..%2f{VERSION}/{fleet.edition()}/0",
            f"{paths.PIECES_PATH}/../{VERSION}/{fleet.edition()}",
            fleet.path(edition="0" * 32),
            fleet.path("step-404", "0" * 32),
            fleet.path("step-1"),
        )
    }

    assert list(answers.values()) == [200, 400, 400, 400, 404, 404, 404, 404, 404, 404]
    for wrong in ("", "another"):
        assert (await fleet.get(0, f"{path}/0", wrong)).status_code == 401
        assert (await fleet.get(0, path, wrong)).status_code == 401


@pytest.mark.usefixtures("impatient")
async def test_what_was_evicted_or_changed_is_not_sent(fleet: Fleet) -> None:
    await fleet.prepare(0, Supply())
    asked = f"{fleet.path()}/0"
    assert (await fleet.get(0, asked)).status_code == 200
    copy = fleet.workers[0]._scratch / "cache" / "versions" / VERSION  # noqa: SLF001

    shutil.rmtree(copy)

    assert (await fleet.get(0, asked)).status_code == 404
    await fleet.prepare(1, Supply(readers=(fleet.address(0),), senders=(fleet.address(0),)))
    assert fleet.is_right(1)


@pytest.mark.usefixtures("impatient")
async def test_a_version_that_is_written_again_is_another_edition(fleet: Fleet) -> None:
    await fleet.prepare(0, Supply())
    before = fleet.path()
    shutil.rmtree(fleet.weights / VERSION)
    write_version(fleet.weights, VERSION, seed=9, shards=2)

    await fleet.prepare(1, Supply(readers=(fleet.address(0),), senders=(fleet.address(0),)))

    assert fleet.is_right(1)
    assert (await fleet.get(1, before)).status_code == 404
    assert (await fleet.get(1, fleet.path())).status_code == 200


async def test_a_worker_that_shares_nothing_is_as_before(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    await fleet.prepare(0, None)

    assert from_store(caplog) == []
    assert (await fleet.get(0, fleet.path())).status_code == 404
