"""A fleet's loop, when the API server refuses, is slow, or holds what cannot be parsed."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from functools import partial

import pytest
from aiohttp import web

from rlfleet_operator.core.model.world import time_of
from rlfleet_operator.crd.field_types import epoch_of
from rlfleet_operator.kube import apply
from rlfleet_operator.kube.client import Json, KubeClient, fleet_path, object_path
from rlfleet_operator.kube.lease import LeaseTerm
from rlfleet_operator.kube.pod_cache import PodCache
from rlfleet_operator.reconcile import reconciler as drivers
from rlfleet_operator.reconcile import status_writer
from rlfleet_operator.reconcile.reconciler import Reconciler
from rlfleet_operator.reconcile.shared_clients import SharedClients
from rlfleet_operator.settings import OperatorSettings
from rlfleet_operator.workers.certificate import SidecarCertificates
from tests.fakes.kube import FakeApi, serving
from tests.patience import given_up

KEY = ("rl", "qwen")
PODS, EVENTS = object_path("rl", "pods"), object_path("rl", "events")
STATUS = fleet_path(*KEY) + "/status"
_AT = "2023-11-14T22:13:20Z"


class Api(FakeApi):
    """Keeps a fleet's status, up to a size; its Events may take their time."""

    def __init__(self, status: Json | None = None) -> None:
        super().__init__()
        self.most = 10**9
        self.overtaken: list[Callable[[], object]] = []
        """What others write just before each next write of status."""
        self.is_refusing = False
        """Answers every write of the status with an error."""
        self.refuses_with = 500
        self.refused = 0
        self.takes_status = asyncio.Event()
        self.takes_status.set()
        self.events: list[Json] = []
        self.takes_events = asyncio.Event()
        self.takes_events.set()
        self.writes: list[Json] = []
        self.done = asyncio.Event()
        """Set with each request that changes something."""
        self.revisions = itertools.count(10)
        metadata = {"namespace": "rl", "name": "qwen", "uid": "f-1", "generation": 1}
        spec = {
            "model": {"name": "m", "path": "/m"},
            "weights": {"path": "/w/{version}"},
            "weightVersion": "step-1",
            "historyLimit": 50,
        }
        fleet = {"metadata": {**metadata, "resourceVersion": "5"}, "spec": spec}
        self.fleet: Json = {**fleet, "status": status or {}}
        self.objects[fleet_path(*KEY)] = self.fleet

    async def handle(self, request: web.Request) -> web.Response:
        if request.method == "PATCH" and request.path == STATUS:
            # What has arrived is written, also if the client is gone.
            await request.read()
            return await asyncio.shield(self._patched(request))
        if request.path == EVENTS:
            await self.takes_events.wait()
            self.events.append(await request.json())
            self.done.set()
            return web.json_response(self.events[-1], status=201)
        answer = await super().handle(request)
        if request.method == "POST":
            self.done.set()
        return answer

    async def _patched(self, request: web.Request) -> web.Response:
        await self.takes_status.wait()
        if self.is_refusing:
            self.refused += 1
            self.done.set()
            return web.json_response({"message": "no"}, status=self.refuses_with)
        if len(await request.read()) > self.most:
            told = {"message": "etcdserver: request is too large"}
            return web.json_response(told, status=500)
        body = await request.json()
        if self.overtaken:
            self.overtaken.pop(0)()
        known, expected = self.fleet["metadata"], body["metadata"]["resourceVersion"]
        if expected != known["resourceVersion"]:
            return web.json_response({"message": "the object has been modified"}, status=409)
        self.writes.append(body["status"])
        status = {**self.fleet["status"], **body["status"]}
        self.fleet["status"] = {k: v for k, v in status.items() if v is not None}
        self.fleet["metadata"]["resourceVersion"] = str(next(self.revisions))
        self.done.set()
        return web.json_response(self.fleet)

    async def until(self, what: Callable[[], object]) -> None:
        """Wait until something is true."""
        async with asyncio.timeout(5):
            while not what():
                self.done.clear()
                await self.done.wait()

    def declare(self, replicas: int) -> Json:
        """Change the spec; return the object as the watch delivers it."""
        self.fleet["spec"]["replicas"] = replicas
        self.fleet["metadata"]["generation"] += 1
        self.fleet["metadata"]["resourceVersion"] = str(next(self.revisions))
        return deepcopy(self.fleet)

    def label(self) -> None:
        """Change what no status depends on."""
        self.fleet["metadata"]["labels"] = {"n": str(next(self.revisions))}
        self.fleet["metadata"]["resourceVersion"] = str(next(self.revisions))

    def pods(self) -> int:
        return sum(path.startswith(PODS) for path in self.objects)

    def has_pods(self) -> bool:
        return any(path.startswith(PODS) for path in self.objects)


def services(kube: KubeClient) -> SharedClients:
    pods = PodCache(kube, (), lambda _key: None, 5)
    settings = OperatorSettings(worker_image="worker:1")
    return SharedClients(
        kube,
        pods,
        settings,
        asyncio.Semaphore(8),
        LeaseTerm(),
        SidecarCertificates(partial(apply.ca_of, kube)),
    )


@asynccontextmanager
async def driven(api: Api) -> AsyncIterator[Reconciler]:
    async with serving(api) as kube:
        driver = Reconciler(KEY, deepcopy(api.fleet), services(kube))
        running = asyncio.create_task(driver.run())
        try:
            yield driver
        finally:
            await given_up(running)


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_WRITE_INTERVAL_S", "_ERROR_PAUSE_S"):
        monkeypatch.setattr(drivers, name, 0.01)
    monkeypatch.setattr("rlfleet_operator.reconcile.event_poster._FAREWELL_S", 0.01)


async def begin_a_write(api: Api, driver: Reconciler) -> None:
    """Have a driver at rest act, and begin a write of status that waits."""
    await api.until(api.has_pods)
    await asyncio.sleep(0.1)
    api.takes_status.clear()
    driver.deliver(api.declare(2))
    await api.until(lambda: api.pods() == 2)


async def test_commands_do_not_wait_for_events(api: Api) -> None:
    api.takes_events.clear()

    async with driven(api):
        await api.until(api.has_pods)
        assert api.events == []
        api.takes_events.set()
        await api.until(lambda: api.events)

    assert api.events[0]["reason"] == "RolloutStarted"


async def test_what_is_due_does_not_wait_for_a_status_that_is_written(api: Api) -> None:
    async with driven(api) as driver:
        await begin_a_write(api, driver)
        written = len(api.writes)
        api.takes_status.set()
        await api.until(lambda: len(api.writes) > written)


async def test_a_status_is_written_while_others_label_the_fleet(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drivers, "_WRITE_INTERVAL_S", 60)
    api.overtaken = [api.label] * 3

    async with driven(api):
        await api.until(api.has_pods)

    assert not api.overtaken
    assert api.fleet["metadata"]["labels"]


async def test_a_status_is_not_written_over_a_changed_spec(api: Api) -> None:
    api.overtaken = [api.label, lambda: api.declare(2)]

    async with driven(api):
        await api.until(lambda: api.pods() == 2)

    assert {one["observedGeneration"] for one in api.writes} == {2}


@pytest.mark.parametrize("how", ["refused", "overdue"])
async def test_a_driver_whose_status_is_not_written_does_nothing_until_it_is(
    api: Api, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_writer, "_OVERDUE_S", 0.05)
    async with driven(api) as driver:
        await begin_a_write(api, driver)
        if how == "refused":
            api.is_refusing = True
            api.takes_status.set()
            await api.until(lambda: api.refused > 1)
        await asyncio.sleep(0.2)
        driver.deliver(api.declare(3))
        await asyncio.sleep(0.3)
        assert api.pods() == 2
        api.is_refusing = False
        api.takes_status.set()
        await api.until(lambda: api.pods() == 3)


@pytest.mark.parametrize(
    ("status", "reported"), [(422, ["ReconcileFailed"]), (403, ["ReconcileFailed"]), (500, [])]
)
async def test_a_status_that_is_denied_for_good_is_reported_by_one_event(
    api: Api, status: int, reported: list[str]
) -> None:
    """Status itself cannot say so, as where a policy demands a label of every object."""
    api.is_refusing, api.refuses_with = True, status

    async with driven(api):
        await api.until(lambda: api.refused > 2 and len(api.events) >= len(reported))

    assert [event["reason"] for event in api.events] == reported
    assert all("no" in event["message"] for event in api.events)


async def test_a_status_that_cannot_be_written_for_long_is_reported_by_one_event(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the server of a validating webhook with failurePolicy Fail is lost."""
    monkeypatch.setattr("rlfleet_operator.reconcile.object_errors.LASTING_S", 0.05)
    api.is_refusing = True

    async with driven(api):
        await api.until(lambda: api.events)
        refused = api.refused
        await api.until(lambda: api.refused > refused + 2)

    assert [event["reason"] for event in api.events] == ["ReconcileFailed"]


async def test_a_change_soon_after_a_refused_write_waits_for_the_next_one(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drivers, "_WRITE_INTERVAL_S", 0.5)
    async with driven(api) as driver:
        await begin_a_write(api, driver)
        api.is_refusing = True
        api.takes_status.set()
        await api.until(lambda: api.refused)
        await asyncio.sleep(0.05)
        driver.deliver(api.declare(3))
        await asyncio.sleep(0.3)
        assert api.pods() == 2
        api.is_refusing = False
        await api.until(lambda: api.pods() == 3)


async def test_a_defect_during_a_write_of_status_is_reported_after_it(api: Api) -> None:
    async with driven(api) as driver:
        await begin_a_write(api, driver)
        del driver._replacements  # noqa: SLF001 - any defect does
        driver.wake()
        await asyncio.sleep(0.2)
        api.takes_status.set()
        await api.until(lambda: "Stalled" in {c["type"] for c in api.writes[-1]["conditions"]})

    stalled = api.fleet["status"]["conditions"][-1]
    assert (stalled["type"], stalled["status"]) == ("Stalled", "True")


async def test_a_status_that_is_too_large_is_written_with_less_in_it() -> None:
    past = {"id": 1, "to": "step-0", "result": "Completed", "startedAt": _AT, "seconds": 1.0}
    api = Api({"history": [{**past, "message": "m" * 256}] * 50})
    api.most = 16_000

    async with driven(api):
        await api.until(api.has_pods)

    # What is known of earlier rollouts is in status alone: it is gone after this write.
    assert api.writes[0]["leftOut"] == ["history"]
    assert api.writes[0]["rollout"]["to"] == "step-1"


BROKEN: Json = {
    "trainerPause": {
        "operation": "pause-1",
        "askedAt": _AT,
        "until": _AT,
        "ttlSeconds": 60,
        "mode": "of a newer release",
    },
    "conditions": [
        {
            "type": "Ready",
            "status": "True",
            "reason": "AllServing",
            "message": "1 of 1 workers serve step-1",
            "lastTransitionTime": _AT,
            "observedGeneration": 1,
        }
    ],
}


async def test_a_fleet_that_cannot_be_parsed_says_so_in_its_status_and_is_driven_once_it_can() -> (
    None
):
    api = Api(BROKEN)

    async with driven(api) as driver:
        await api.until(lambda: api.events)
        await asyncio.sleep(0.1)
        told = api.writes[:]
        del api.fleet["status"]["trainerPause"]
        api.fleet["metadata"]["resourceVersion"] = str(next(api.revisions))
        driver.deliver(deepcopy(api.fleet))
        await api.until(api.has_pods)

    (patch,) = told
    ready, stalled = patch["conditions"]
    assert ready == BROKEN["conditions"][0]
    assert (stalled["type"], stalled["status"], stalled["reason"]) == (
        "Stalled",
        "True",
        "InvalidObject",
    )
    assert "status.trainerPause.mode: " in stalled["message"]
    assert "got 'of a newer release'" in stalled["message"]
    assert patch["observedGeneration"] == 1
    assert [e["reason"] for e in api.events][:1] == ["InvalidObject"]
    assert api.fleet["status"]["conditions"][-1]["reason"] != "InvalidObject"


async def test_a_pause_of_another_clock_ends_after_its_time_to_live() -> None:
    begun = time.time()
    day_later = time_of(begun + 86_400)
    pause = {"operation": "pause-1", "askedAt": _AT, "until": day_later, "ttlSeconds": 60}
    api = Api({"trainerPause": pause})
    del api.fleet["spec"]["weightVersion"]

    async with driven(api):
        await api.until(lambda: api.fleet["status"]["trainerPause"]["until"] < day_later)

    until = epoch_of(api.fleet["status"]["trainerPause"]["until"])
    assert begun + 59 <= until <= time.time() + 61
