"""Weights that a trainer sends without a pause of its own, as NeMo-RL does."""

import asyncio

from rlfleet_contract.worker.report import Stage
from tests.contract.subject import Subject
from tests.contract.transcripts import HELD, dynamo, play, send
from tests.contract.transfers import DYNAMO_INIT, UNPAUSED, refit
from tests.fakes.behaviour import Behaviour
from tests.fakes.worker import Worker


async def test_requests_freeze_during_a_refit_without_a_pause(
    served: Subject, fake: Worker
) -> None:
    start, part, finish = refit(**UNPAUSED)
    flushes = fake.engine.flushes
    await play((DYNAMO_INIT, start), served, fake)
    assert not fake.engine.gate.is_open
    asked = asyncio.create_task(served.complete(max_tokens=2))
    await play((HELD, part, HELD), served, fake)
    assert not asked.done()

    await send(finish, served)

    assert (await asked).status_code == 200
    assert (await served.report()).stage is Stage.OPEN
    assert fake.engine.flushes == flushes, "its trainer empties the caches itself"


async def test_a_refit_that_cannot_begin_leaves_its_worker_serving(
    served: Subject, fake: Worker
) -> None:
    start, _part, finish = refit(**UNPAUSED)
    for first in (start, finish):
        body = first.body
        refused = dynamo("update_weights_from_distributed", 409, body, message="first")
        await send(refused, served)
    assert fake.engine.gate.is_open
    assert (await served.report()).stage is Stage.OPEN


async def test_a_refit_whose_part_fails_is_doubt_and_does_not_open(
    served: Subject, fake: Worker
) -> None:
    start, part, finish = refit(**UNPAUSED)
    await play((DYNAMO_INIT, start), served, fake)
    fake.engine.behaviour = Behaviour(receive_fails=True)

    for call, status in ((part, 422), (finish, 409)):
        await send(dynamo("update_weights_from_distributed", status, call.body), served)

    assert (await served.report()).stage is Stage.DOUBT
    assert not fake.engine.gate.is_open
