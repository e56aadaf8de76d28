"""Pods that the API server refuses to create: how often they are tried, what is reported."""

import asyncio
from copy import deepcopy
from functools import partial

import pytest
from aiohttp import web

from rlfleet_operator.core.backoff import Backoff
from rlfleet_operator.core.manifests.pod_manifest import Defaults
from rlfleet_operator.core.model.actions import CreatePod, DeletePod, PodAction
from rlfleet_operator.core.model.fleet import fleet_from
from rlfleet_operator.kube.client import Json, KubeClient
from rlfleet_operator.reconcile import pod_writer
from rlfleet_operator.reconcile import reconciler as drivers
from rlfleet_operator.reconcile.pod_writer import PodWriter
from rlfleet_operator.reconcile.reconciler import Reconciler
from tests.contract.fleets.test_reconciler import PODS, Api, driven
from tests.fakes.kube import serving
from tests.patience import seconds_until

LONG = Backoff(60.0, 60.0)
CREATIONS = [CreatePod(0), CreatePod(1)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_WRITE_INTERVAL_S", "_ERROR_PAUSE_S"):
        monkeypatch.setattr(drivers, name, 0.01)
    monkeypatch.setattr("rlfleet_operator.reconcile.event_poster._FAREWELL_S", 0.01)


@pytest.fixture
def api() -> Api:
    """An API server whose quota of pods is used up."""
    made = Api()
    made.takes_events.set()
    made.errors[PODS] = 403
    return made


def tried(api: Api) -> int:
    return api.asked.count(f"POST {PODS}")


async def tried_thrice(api: Api) -> bool:
    return tried(api) >= 3


def refusal(api: Api) -> str | None:
    """Return what status says of a refused object."""
    conditions = api.fleet["status"].get("conditions", ())
    found = {one["type"]: one["reason"] for one in conditions if one["status"] == "True"}
    return found.get("Stalled")


async def woken(driver: Reconciler, times: int) -> None:
    for _ in range(times):
        driver.wake()
        await asyncio.sleep(0.02)


async def test_events_do_not_have_a_refused_pod_created_again_before_its_time(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_writer, "_BACKOFF", LONG)

    async with driven(api) as driver:
        await api.until(lambda: refusal(api))
        written = len(api.writes)
        await woken(driver, 20)

    assert refusal(api) == "ObjectRefused"
    # Passes that try nothing say nothing else.
    assert len(api.writes) == written
    assert tried(api) == 1


async def test_a_refused_pod_is_created_without_an_event_once_it_may_be(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_writer, "_BACKOFF", Backoff(0.1, 0.2))

    async with driven(api):
        await seconds_until(partial(tried_thrice, api))
        assert refusal(api) == "ObjectRefused"
        del api.errors[PODS]
        await api.until(api.has_pods)
        await api.until(lambda: refusal(api) is None)


async def test_with_another_spec_a_refused_pod_is_tried_at_once(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_writer, "_BACKOFF", LONG)

    async with driven(api) as driver:
        await api.until(lambda: refusal(api))
        del api.errors[PODS]
        driver.deliver(api.declare(2))
        await api.until(lambda: api.pods() == 2)


class Written:
    """A writer, and what it has tried after each pass."""

    def __init__(self, kube: KubeClient, api: Api) -> None:
        self.writer = PodWriter(kube, Defaults("worker:1"), lambda: None)
        self.fleet, self.api = fleet_from(deepcopy(api.fleet)), api

    async def after(self, *actions: PodAction) -> int:
        """Write the pods of a pass; return how many it tried to create."""
        before = tried(self.api)
        self.writer.begin(self.fleet, actions)
        await seconds_until(self._has_ended)
        return tried(self.api) - before

    async def _has_ended(self) -> bool:
        task = self.writer._writing  # noqa: SLF001 - no event reports its end
        return task is None or task.done()


class OneRefused(Api):
    """Refuses the first worker's pod."""

    def _created(self, path: str, body: Json) -> web.Response:
        if body["metadata"]["name"] == "qwen-0":
            return web.json_response({"message": "no"}, status=403)
        return super()._created(path, body)


class TrialRefused(Api):
    """Refuses each trial of a pod in these words."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__()
        self.answer = {"message": message}, status

    async def handle(self, request: web.Request) -> web.Response:
        if request.query.get("dryRun") == "All":
            self.asked.append(f"POST {request.path}")
            body, status = self.answer
            return web.json_response(body, status=status)
        return await super().handle(request)


REPLACEMENT = DeletePod("qwen-0", "p-0", "outdated", successor=0)


async def test_a_pod_whose_successor_is_refused_stays_and_is_not_tried_at_each_event() -> None:
    api = TrialRefused('Pod "qwen-0" is invalid', 422)
    async with serving(api) as kube:
        passes = Written(kube, api)

        assert [await passes.after(REPLACEMENT) for _ in range(3)] == [1, 0, 0]

    assert passes.writer.trouble is not None
    assert "is invalid" in passes.writer.trouble.message
    assert not [one for one in api.asked if one.startswith("DELETE")]


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ('pods "qwen-0" is forbidden: exceeded quota: few, used: pods=2, limited: pods=2', 403),
        ("admission webhook x does not support dry run", 400),
        ('pods "qwen-0" already exists', 409),
    ],
)
async def test_an_undecided_trial_does_not_delay_a_replacement(message: str, status: int) -> None:
    api = TrialRefused(message, status)
    async with serving(api) as kube:
        await Written(kube, api).after(REPLACEMENT)

    assert f"DELETE {PODS}/qwen-0" in api.asked


async def test_pods_wait_while_none_is_created_and_the_wait_ends_with_them(api: Api) -> None:
    async with serving(api) as kube:
        passes = Written(kube, api)

        assert await passes.after(*CREATIONS) == 2
        assert await passes.after(*CREATIONS) == 0
        assert passes.writer.trouble is not None
        assert 0 < passes.writer.retry_in_s() <= 1
        assert await passes.after() == 0
        assert passes.writer.trouble is None
        assert await passes.after(*CREATIONS) == 2


async def test_one_refused_pod_holds_up_no_other() -> None:
    api = OneRefused()

    async with serving(api) as kube:
        passes = Written(kube, api)

        assert await passes.after(*CREATIONS) == 2
        assert await passes.after(CreatePod(0), CreatePod(2)) == 2
        assert await passes.after(CreatePod(0)) == 1
        assert await passes.after(CreatePod(0)) == 0
        assert await passes.after(CreatePod(0), CreatePod(3)) == 1


async def test_an_error_that_may_pass_holds_up_pods_for_seconds(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_writer, "_BACKOFF", LONG)
    api.errors[PODS] = 500

    async with serving(api) as kube:
        passes = Written(kube, api)

        assert await passes.after(*CREATIONS) > 0
        assert await passes.after(*CREATIONS) == 0
        assert 0 < passes.writer.retry_in_s() <= 5
