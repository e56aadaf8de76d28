"""A trainer that is gone: its change ends like any other without a driver."""

import pytest

from rlfleet_contract.worker.report import Stage
from tests.contract.conftest import ended
from tests.contract.subject import Subject
from tests.contract.transcripts import PAUSE, Call, send, update
from tests.fakes.behaviour import Behaviour
from tests.fakes.worker import Worker

TTL_S = 0.6
LATE_S = 2.0


@pytest.fixture
def identity() -> dict[str, object]:
    return {"trainer_ttl_s": TTL_S, "trainer_prepare_s": TTL_S / 2}


@pytest.fixture
async def paused(subject: Subject) -> Subject:
    """A worker that serves the first version and was paused by a trainer."""
    await subject.serve("step-1")
    await send(PAUSE, subject)
    return subject


@pytest.mark.parametrize(
    ("calls", "expected"),
    [((), "step-1"), ((update("step-2"),), "step-2")],
    ids=["before the update", "before the resume"],
)
async def test_a_trainer_that_dies_leaves_no_worker_paused(
    fake: Worker, paused: Subject, calls: tuple[Call, ...], expected: str
) -> None:
    for call in calls:
        await send(call, paused)

    report, took_s = await ended(fake, Stage.OPEN)

    assert took_s < TTL_S + LATE_S
    assert report.proved == expected


async def test_an_engine_in_doubt_whose_trainer_died_is_ended(
    fake: Worker, paused: Subject
) -> None:
    fake.engine.behaviour = Behaviour(reload_fails=True)
    await send(update("step-2", 422), paused)

    _, took_s = await ended(fake, Stage.DOWN)

    assert took_s < TTL_S + LATE_S
    assert not fake.engine.gate.is_open
