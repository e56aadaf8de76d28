"""A proof with many frozen requests holds where large batches change answers slightly."""

import asyncio
from dataclasses import replace

import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from tests.contract.subject import Subject
from tests.contract.versions.test_proof import behave, restart
from tests.fakes.worker import Worker
from tests.patience import given_up

CROWD = 16
NOISE = 0.1


@pytest.fixture
def identity(request: pytest.FixtureRequest) -> dict[str, str]:
    """How long an engine may be measured: as long as the test says."""
    return {"gauge_s": str(request.param)}


async def led(fake: Worker, subject: Subject) -> None:
    """Freeze a crowd, and leave it in flight for the proof."""
    await behave(fake, crowd_noise=NOISE)
    await restart(fake, subject)
    await subject.serve(subject.versions.first)
    await subject.ok(paths.PREPARE_PATH, subject.versions.second)
    fake.engine.behaviour = replace(fake.engine.behaviour, token_s=0.05)


async def frozen(subject: Subject) -> "list[asyncio.Task[object]]":
    made = [asyncio.create_task(subject.complete(max_tokens=60)) for _ in range(CROWD)]
    await subject.until(lambda report: report.in_flight >= CROWD)
    return [*made]


@pytest.mark.parametrize("identity", [10], indirect=True)
async def test_a_good_version_is_proved_with_many_frozen_requests(
    fake: Worker, subject: Subject
) -> None:
    await led(fake, subject)
    crowd = await frozen(subject)

    report = await subject.ok(paths.UPDATE_WEIGHTS_PATH, subject.versions.second)

    assert (report.stage, report.proved) == (Stage.OPEN, subject.versions.second)
    assert report.proof is not None
    assert report.proof.tolerance >= NOISE
    await given_up(*crowd)


@pytest.mark.parametrize("identity", [0], indirect=True)
async def test_an_engine_that_was_not_measured_in_a_crowd_would_fail_it(
    fake: Worker, subject: Subject
) -> None:
    await led(fake, subject)
    crowd = await frozen(subject)

    await subject.refused(Code.PROOF_FAILED, paths.UPDATE_WEIGHTS_PATH, subject.versions.second)

    await given_up(*crowd)
