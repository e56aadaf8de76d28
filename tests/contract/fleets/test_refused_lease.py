"""A candidate whose calls the API server refuses: it says so once, and is not ready."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

import httpx
import pytest
from aiohttp import web

from rlfleet_operator import metrics
from rlfleet_operator.core.backoff import Backoff
from rlfleet_operator.kube import lease
from rlfleet_operator.kube.client import object_path
from rlfleet_operator.kube.lease import LeaseElection
from rlfleet_operator.metrics import Health
from tests.fakes.kube import FakeApi, serving
from tests.patience import given_up, seconds_until

LEASES = object_path("ops", "leases")
LEASE = f"{LEASES}/rlfleet"
GET, CREATE = ("GET", LEASE), ("POST", LEASES)


class Api(FakeApi):
    """Keeps a Lease, and refuses single calls."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses: dict[tuple[str, str], int] = {}

    async def handle(self, request: web.Request) -> web.Response:
        status = self.refuses.get((request.method, request.path))
        if status is not None:
            self.asked.append(f"{request.method} {request.path}")
            return web.json_response({"message": "no leases in ops"}, status=status)
        if (request.method, request.path) == CREATE:
            made = await request.json()
            made["metadata"]["resourceVersion"] = "1"
            self.objects[LEASE] = made
            return web.json_response(made, status=201)
        if request.method == "PUT":
            return web.json_response(self.objects[LEASE])
        return await super().handle(request)


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
async def election(api: Api, health: Health) -> AsyncIterator[LeaseElection]:
    async with serving(api) as kube:
        yield LeaseElection(kube, "ops", "rlfleet", health)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_REFUSED", Backoff(0.001, 0.01))


async def until(what: Callable[[], object]) -> None:
    async def is_so() -> bool:
        return bool(what())

    await seconds_until(is_so, 5)


@pytest.mark.parametrize(
    ("call", "status", "action"),
    [
        (GET, 403, "grant this ServiceAccount get, create and update of leases"),
        (CREATE, 403, "grant this ServiceAccount get, create and update of leases"),
        (CREATE, 404, "check RLFLEET_LEASE_NAMESPACE"),
    ],
    ids=["no get", "no create", "no namespace"],
)
async def test_it_says_once_what_is_missing_and_leads_once_it_may(
    api: Api,
    election: LeaseElection,
    health: Health,
    caplog: pytest.LogCaptureFixture,
    call: tuple[str, str],
    status: int,
    action: str,
) -> None:
    caplog.set_level(logging.INFO)
    api.refuses[call] = status
    winning = asyncio.create_task(election.win())

    await until(lambda: len(api.asked) > 20)
    obstacle, lines = health.obstacle, [r for r in caplog.records if "Lease" in r.message]
    api.refuses.clear()
    await asyncio.wait_for(winning, 5)

    assert obstacle is not None
    assert "ops/rlfleet" in obstacle
    assert "no leases in ops" in obstacle
    assert action in obstacle
    assert [line.levelname for line in lines if "refuses" in line.message] == ["ERROR"]
    assert len(lines) == 2  # The other is that it waits.
    assert health.obstacle is None


async def test_it_asks_ever_more_slowly(
    api: Api, election: LeaseElection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_REFUSED", Backoff(0.01, 60))
    api.refuses[GET] = 403
    winning = asyncio.create_task(election.win())

    await asyncio.sleep(1)
    await given_up(winning)

    assert len(api.asked) <= 8


async def test_a_candidate_that_only_looks_on_is_refused_nothing(
    api: Api, election: LeaseElection, health: Health
) -> None:
    """Whether it may write shows once the other is gone."""
    spec = {"holderIdentity": "another", "leaseDurationSeconds": 10}
    api.objects[LEASE] = {"metadata": {"name": "rlfleet", "resourceVersion": "7"}, "spec": spec}
    api.refuses[GET] = 403
    winning = asyncio.create_task(election.win())

    await until(lambda: health.obstacle is not None)
    api.refuses.clear()
    await until(lambda: health.obstacle is None)
    await given_up(winning)


async def test_it_is_not_ready_and_says_why(
    api: Api, election: LeaseElection, health: Health
) -> None:
    health.is_listed = True
    port = metrics.serve(0, health)
    async with httpx.AsyncClient(trust_env=False) as client:

        async def asked() -> tuple[int, str]:
            answer = await client.get(f"http://127.0.0.1:{port}/readyz")
            return answer.status_code, answer.text

        before = await asked()
        api.refuses[GET] = 403
        winning = asyncio.create_task(election.win())
        await until(lambda: health.obstacle)
        status, text = await asked()
        await given_up(winning)

    assert before == (200, "ready\n")
    assert status == 503
    assert "grant this ServiceAccount" in text
