"""A trainer of a fleet that cannot be parsed is answered with the field and the way out."""

import base64
import logging
from collections.abc import AsyncIterator

import httpx
import pytest
from aiohttp.test_utils import TestServer

from rlfleet_operator import metrics
from rlfleet_operator.core.trainer.routes import CLASSIC, OFFERS
from rlfleet_operator.kube.client import Json, fleet_path, object_path
from rlfleet_operator.kube.pod_cache import PodCache
from rlfleet_operator.reconcile.supervisor import Supervisor
from rlfleet_operator.settings import OperatorSettings
from rlfleet_operator.trainer_api.server import FleetRoutes
from tests.fakes.kube import FakeApi, serving

ABOUT = {"namespace": "rl", "name": "qwen", "uid": "a", "generation": 1, "resourceVersion": "5"}
SPEC: Json = {"model": {"name": "m", "path": "/m"}, "weights": {"path": "/w/{version}"}}
AT = "2026-01-01T00:00:00Z"
ROLLOUT = {"id": 1, "to": "step-1", "phase": "Completed", "startedAt": AT}
PAUSE = {"operation": "o", "askedAt": AT, "until": AT, "ttlSeconds": 60}
UNPARSABLE: dict[str, Json] = {
    "spec.replicas": {"spec": SPEC | {"replicas": "two"}},
    "status.rollout.startedAt": {"status": {"rollout": ROLLOUT | {"startedAt": "yesterday"}}},
    "status.trainerPause.until": {"status": {"trainerPause": PAUSE | {"until": "soon"}}},
    "status.trainerPause.mode": {"status": {"trainerPause": PAUSE | {"mode": "Later"}}},
}
WAYS = {"spec": "write a valid value", "status": "kubectl edit --subresource=status"}
ROUTES = [(offer.method, f"v1/rl/{name}") for name, offer in OFFERS.items()]
ROUTES += [(offer.method, name) for name, offer in CLASSIC.items()]
BODIES = {"v1/rl/update_weights": {"version": "step-2"}, "update_weights": {"weight_dir": "/w/b"}}


@pytest.fixture
async def fleets() -> AsyncIterator[tuple[Supervisor, FakeApi, str]]:
    """The fleet API, in front of an API server whose objects a test writes."""
    api = FakeApi()
    token = {"data": {"token": base64.b64encode(b"secret").decode()}}
    owner = {"ownerReferences": [{"uid": "a"}], "name": "qwen-admin"}
    api.objects[object_path("rl", "secrets", "qwen-admin")] = {"metadata": owner, **token}
    settings = OperatorSettings(worker_image="worker:1")
    known = Supervisor(settings, metrics.Health())
    routes = FleetRoutes(known, settings)._app()  # noqa: SLF001 - at a port that is free
    async with serving(api) as kube, TestServer(routes) as server:
        known.kube, known._pods = kube, PodCache(kube, (), lambda _key: None, 5)  # noqa: SLF001
        yield known, api, str(server.make_url("/fleets/rl/qwen/"))


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": "Bearer secret"}
    async with httpx.AsyncClient(trust_env=False, headers=headers) as client:
        yield client


@pytest.mark.parametrize("field", UNPARSABLE)
async def test_each_route_names_the_field_that_cannot_be_parsed(
    fleets: tuple[Supervisor, FakeApi, str], client: httpx.AsyncClient, field: str
) -> None:
    known, api, url = fleets
    raw = {"metadata": ABOUT, "spec": SPEC} | UNPARSABLE[field]
    api.objects[fleet_path("rl", "qwen")] = raw
    known.deliver("ADDED", raw)

    for method, route in ROUTES:
        said = await client.request(method, url + route, json=BODIES.get(route))

        body = said.json()
        expected = (409, "InvalidObject", False)
        assert (said.status_code, body["code"], body["retryable"]) == expected, route
        assert f"{field}: " in body["message"]
        assert WAYS[field.partition(".")[0]] in body["message"]


async def test_a_defect_in_a_route_is_logged_with_the_fleet(
    fleets: tuple[Supervisor, FakeApi, str],
    client: httpx.AsyncClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    known, _, url = fleets
    known.deliver("ADDED", {"metadata": ABOUT, "spec": SPEC})
    del known._pods  # noqa: SLF001 - any defect does

    with caplog.at_level(logging.ERROR):
        said = await client.get(url + "v1/rl/state")

    assert (said.status_code, said.json()["code"]) == (500, "Internal")
    (line,) = [vars(record) for record in caplog.records if record.levelno == logging.ERROR]
    assert (line["namespace"], line["fleet"], line["route"]) == ("rl", "qwen", "state")
