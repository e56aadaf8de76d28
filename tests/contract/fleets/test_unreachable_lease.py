"""An API server that does not answer for a Lease: the log says so once, and when it ended."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from rlfleet_operator.core.backoff import Backoff
from rlfleet_operator.kube import lease
from rlfleet_operator.kube.lease import LeaseElection
from rlfleet_operator.metrics import Health
from tests.contract.fleets.test_refused_lease import CREATE, GET, LEASE, Api, until
from tests.fakes.kube import serving
from tests.patience import given_up

FAILED, AGAIN = "Failed to read or renew the Lease", "Read or renewed the Lease again"


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
async def election(api: Api) -> AsyncIterator[LeaseElection]:
    async with serving(api) as kube:
        yield LeaseElection(kube, "ops", "rlfleet", Health())


@pytest.fixture
def hurried(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate's pauses are short, and what it logs is kept."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(lease, "_UNREACHABLE", Backoff(0.001, 0.01))


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(r.levelname, r.message) for r in caplog.records if r.message in {FAILED, AGAIN}]


@pytest.mark.usefixtures("hurried")
async def test_a_candidate_says_once_that_it_fails_and_once_that_it_ended(
    api: Api, election: LeaseElection, caplog: pytest.LogCaptureFixture
) -> None:
    api.error = 503
    winning = asyncio.create_task(election.win())

    await until(lambda: len(api.asked) > 20)
    api.error = None
    await asyncio.wait_for(winning, 5)

    assert lines(caplog) == [("WARNING", FAILED), ("INFO", AGAIN)]


@pytest.mark.usefixtures("hurried")
async def test_reads_that_pass_do_not_end_it_while_writes_fail(
    api: Api, election: LeaseElection, caplog: pytest.LogCaptureFixture
) -> None:
    api.refuses[CREATE] = 500
    winning = asyncio.create_task(election.win())

    await until(lambda: len(api.asked) > 20)
    await given_up(winning)

    assert lines(caplog) == [("WARNING", FAILED)]


async def test_a_candidate_asks_ever_more_slowly(api: Api, election: LeaseElection) -> None:
    api.error = 503
    winning = asyncio.create_task(election.win())

    await asyncio.sleep(3)
    await given_up(winning)

    assert len(api.asked) == 3  # After 0, 0.5 and 1.5 s; the next after 3.5 s.


async def test_a_leader_tries_each_half_second_while_its_term_runs(
    api: Api, election: LeaseElection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    term = await election.win()
    api.refuses |= {GET: 503, ("PUT", LEASE): 503}
    asked = len(api.asked)

    async with asyncio.timeout(10):
        await election.hold(term)  # The first renewal is due after 2 s, the term ends after 6 s.

    assert term.over.is_set()
    assert 6 <= len(api.asked) - asked <= 9
    assert lines(caplog) == [("WARNING", FAILED)]
