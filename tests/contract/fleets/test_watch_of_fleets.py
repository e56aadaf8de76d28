"""kopf's watch ends by an unexpected answer, and begins again while the drivers run."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from rlfleet_operator import kopf_app, metrics
from rlfleet_operator.core.backoff import Backoff
from rlfleet_operator.crd.fleet_spec import API_VERSION, GROUP, PLURAL
from rlfleet_operator.kube.client import Json, fleet_path
from rlfleet_operator.reconcile.supervisor import Supervisor
from rlfleet_operator.settings import OperatorSettings
from tests.contract.fleets.test_supervisor import fleet
from tests.fakes.kube import FakeApi, serving
from tests.patience import given_up

KEY = ("rl", "qwen")
PAGE = "<html>maintenance</html>"
DISCOVERY = f"/apis/{GROUP}/{API_VERSION}"
ENDS: dict[str, tuple[int, str]] = {
    "a proxy's page": (200, PAGE),
    "an error within the watch": (
        200,
        json.dumps({"type": "ERROR", "object": {"code": 500, "message": "etcd: no leader"}}),
    ),
    "an event that is no object": (200, "[]"),
    "a resource that is not served for a while": (404, '{"kind":"Status"}'),
}


def _group(name: str, version: str) -> Json:
    told = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [told], "preferredVersion": told}


def _resource(name: str, kind: str) -> Json:
    is_in_one = kind not in {"Namespace", "CustomResourceDefinition"}
    verbs = ["get", "list", "watch", "patch"]
    return {"name": name, "singularName": "", "namespaced": is_in_one, "kind": kind, "verbs": verbs}


class Api(FakeApi):
    """An API server for kopf; ends the first watches of fleets as a test requires."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[tuple[int, str]] = []
        self.watches = 0
        groups = [_group("apiextensions.k8s.io", "v1"), _group(GROUP, API_VERSION)]
        crds = [_resource("customresourcedefinitions", "CustomResourceDefinition")]
        self.objects |= {
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/api/v1": {"resources": [_resource("namespaces", "Namespace")]},
            "/apis": {"groups": groups},
            "/apis/apiextensions.k8s.io/v1": {"resources": crds},
            DISCOVERY: {"resources": [_resource(PLURAL, "RLInferenceFleet")]},
        }

    async def handle(self, request: web.Request) -> web.Response:
        if request.path != fleet_path("") or "watch" not in request.query:
            return await super().handle(request)
        self.watches += 1
        if self.watches <= len(self.ends):
            status, text = self.ends[self.watches - 1]
            return web.Response(status=status, text=text + "\n")
        await asyncio.sleep(60)
        return web.Response()

    def has(self, *fleets: Json) -> None:
        """Have these fleets listed."""
        about = {"resourceVersion": "10"}
        self.objects[fleet_path("")] = {"metadata": about, "items": [*fleets]}
        for one in fleets:
            self.objects[fleet_path("rl", one["metadata"]["name"])] = one


@pytest.fixture
async def watched(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Api, Supervisor]]:
    monkeypatch.setattr(kopf_app, "_BACKOFF", Backoff(0.01, 0.01))
    monkeypatch.setattr(kopf_app, "_WATCH_INTERVAL_S", 0.05)
    api, settings = Api(), OperatorSettings(worker_image="worker:1")
    api.has(fleet("a", 5))
    known = Supervisor(settings, metrics.Health())
    async with serving(api) as kube:
        known.kube = kube
        yield api, known


async def until(is_so: Any) -> None:
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110 - another thread makes it so
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
async def test_the_watch_of_fleets_begins_again_and_ends_nothing_else(
    watched: tuple[Api, Supervisor], end: tuple[int, str]
) -> None:
    api, fleets = watched
    api.ends = [end, end]
    watching = asyncio.create_task(
        kopf_app.FleetWatch(fleets, OperatorSettings(worker_image="w")).run()
    )
    driving = asyncio.create_task(asyncio.sleep(60))
    await until(lambda: fleets.known(KEY))
    api.has(fleet("a", 7))

    await until(lambda: api.watches > len(api.ends))

    await until(lambda: (fleets.known(KEY) or {})["metadata"]["resourceVersion"] == "7")
    assert not driving.done()
    assert not watching.done()
    await given_up(watching, driving)


async def test_the_watch_begins_again_once_a_deleted_definition_is_back(
    watched: tuple[Api, Supervisor],
) -> None:
    api, fleets = watched
    watching = asyncio.create_task(
        kopf_app.FleetWatch(fleets, OperatorSettings(worker_image="w")).run()
    )
    gone = {path: api.objects.pop(path) for path in (DISCOVERY, "/apis")}
    api.objects["/apis"] = {"groups": gone["/apis"]["groups"][:1]}
    await asyncio.sleep(0.5)

    api.objects |= gone

    await until(lambda: api.watches)
    await given_up(watching)


async def test_a_watch_that_the_server_ends_at_once_begins_again_after_a_pause(
    watched: tuple[Api, Supervisor],
) -> None:
    api, fleets = watched
    api.ends = [(200, "")] * 10_000
    settings = OperatorSettings(worker_image="w")
    watching = asyncio.create_task(kopf_app.FleetWatch(fleets, settings).run())
    await until(lambda: api.watches)
    before = api.watches

    await asyncio.sleep(1)

    # One in 0.05 s.
    assert 1 < api.watches - before < 25
    await given_up(watching)


async def test_a_change_that_the_watch_missed_is_taken_by_the_sweep(
    watched: tuple[Api, Supervisor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch that is alive and brings nothing."""
    monkeypatch.setattr("rlfleet_operator.reconcile.supervisor._SWEEP_S", 0.05)
    api, fleets = watched
    fleets.deliver("ADDED", fleet("a", 5))
    sweeping = asyncio.create_task(fleets._keep_sweeping())  # noqa: SLF001 - one of its loops

    api.has(fleet("a", 8))

    await until(lambda: (fleets.known(KEY) or {})["metadata"]["resourceVersion"] == "8")
    await given_up(sweeping)


async def test_what_went_while_the_watch_was_interrupted_is_forgotten_at_once(
    watched: tuple[Api, Supervisor],
) -> None:
    """The list with which a watch begins again does not name it."""
    api, fleets = watched
    fleets.deliver("ADDED", fleet("a", 5))
    sweeping = asyncio.create_task(fleets._keep_sweeping())  # noqa: SLF001 - one of its loops
    api.has()

    fleets.miss()

    await until(lambda: fleets.known(KEY) is None)
    await given_up(sweeping)
