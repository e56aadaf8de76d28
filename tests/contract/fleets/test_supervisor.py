"""The fleets of a process: which states are taken, and what becomes of those that go."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from rlfleet_operator import metrics
from rlfleet_operator.errors import Missing
from rlfleet_operator.kube import apply
from rlfleet_operator.kube.client import Json, KubeClient, fleet_path
from rlfleet_operator.kube.lease import LeaseTerm
from rlfleet_operator.kube.pod_cache import PodCache
from rlfleet_operator.reconcile import supervisor
from rlfleet_operator.reconcile.reconciler import Reconciler
from rlfleet_operator.reconcile.shared_clients import SharedClients
from rlfleet_operator.reconcile.supervisor import StoreRewoundError, Supervisor
from rlfleet_operator.settings import OperatorSettings
from rlfleet_operator.workers.certificate import SidecarCertificates
from tests.fakes.kube import FakeApi, serving
from tests.patience import seconds_until

KEY = ("rl", "qwen")
SETTINGS = OperatorSettings(worker_image="worker:1")


def fleet(uid: str, revision: int, name: str = "qwen", **metadata: Any) -> Json:
    """Return a fleet in the API server's form."""
    about = {"namespace": "rl", "name": name, "uid": uid, "generation": 1}
    spec = {"model": {"name": "m", "path": "/m"}, "weights": {"path": "/w/{version}"}}
    return {"metadata": {**about, "resourceVersion": str(revision), **metadata}, "spec": spec}


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
async def kube(api: FakeApi) -> AsyncIterator[KubeClient]:
    async with serving(api) as kube:
        yield kube


@pytest.fixture
def fleets(kube: KubeClient) -> Supervisor:
    """The fleets of a process that stands by."""
    made = Supervisor(SETTINGS, metrics.Health())
    made.kube = kube
    return made


def services(kube: KubeClient) -> SharedClients:
    pods = PodCache(kube, (), lambda _key: None, 5)
    return SharedClients(
        kube,
        pods,
        SETTINGS,
        asyncio.Semaphore(8),
        LeaseTerm(),
        SidecarCertificates(partial(apply.ca_of, kube)),
    )


def uid_of(fleets: Supervisor) -> str | None:
    known = fleets.known(KEY)
    return known["metadata"]["uid"] if known else None


@pytest.mark.parametrize(
    ("told", "left"),
    [
        ([("ADDED", fleet("a", 5)), ("DELETED", fleet("a", 7))], None),
        ([("ADDED", fleet("a", 5)), ("DELETED", fleet("a", 7)), (None, fleet("a", 6))], None),
        ([("ADDED", fleet("a", 5)), ("DELETED", fleet("a", 7)), ("ADDED", fleet("b", 9))], "b"),
        ([("ADDED", fleet("b", 9)), (None, fleet("a", 6))], "b"),
        ([("ADDED", fleet("b", 9)), ("DELETED", fleet("a", 7))], "b"),
        ([("ADDED", fleet("a", 5)), (None, fleet("b", 9))], "b"),
        ([("DELETED", fleet("a", 7)), (None, fleet("a", 7))], None),
    ],
    ids=[
        "deleted",
        "reported late, after it was deleted",
        "made again",
        "its predecessor reported late",
        "its predecessor's end reported late",
        "made again in a gap",
        "an answer to a write that crossed its end",
    ],
)
def test_what_comes_late_brings_no_fleet_back(
    fleets: Supervisor, told: list[tuple[str | None, Json]], left: str | None
) -> None:
    for kind, raw in told:
        fleets.deliver(kind, raw)

    assert uid_of(fleets) == left


async def test_a_sweep_forgets_deleted_fleets_with_their_metrics(
    fleets: Supervisor, api: FakeApi
) -> None:
    for name, uid, revision in (("qwen", "a", 5), ("stays", "s", 6)):
        fleets.deliver("ADDED", fleet(uid, revision, name))
        metrics.begin("rl", name)
    there = [listed("stays", "s", 6), listed("elsewhere", "another", 7)]
    api.objects[fleet_path("")] = {"metadata": {"resourceVersion": "10"}, "items": there}

    sweeping = asyncio.create_task(fleets.sweep(""))
    await asyncio.sleep(0)
    # Made after the list was.
    fleets.deliver("ADDED", fleet("n", 12, "new"))
    await sweeping

    assert fleets.known(KEY) is None
    assert fleets.known(("rl", "new")) is not None
    assert fleets.known(("rl", "stays")) is not None
    assert "qwen" not in {labels["fleet"] for labels in counted()}
    fleets.deliver(None, fleet("a", 9))
    assert fleets.known(KEY) is None


async def test_a_store_that_stays_in_the_past_ends_the_process_and_a_stale_reply_does_not(
    fleets: Supervisor, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restored etcd counts on from an older revision: newer states would be taken for older."""
    fleets.deliver("ADDED", fleet("a", 5))
    past: Json = {"metadata": {"resourceVersion": "4"}, "items": []}
    present: Json = {"metadata": {"resourceVersion": "5"}, "items": [listed("qwen", "a", 5)]}
    for reply in (past, past, present, past):
        api.objects[fleet_path("")] = reply
        await fleets.sweep("")
    assert uid_of(fleets) == "a"

    monkeypatch.setattr(supervisor, "_STALE_S", 0.0)
    with pytest.raises(StoreRewoundError, match="listed at revision 4, known at 5"):
        await fleets.sweep("")


async def test_a_trainer_that_waits_learns_of_a_deletion_that_a_sweep_found(
    fleets: Supervisor, api: FakeApi
) -> None:
    fleets.deliver("ADDED", fleet("a", 5))
    waiting = asyncio.create_task(fleets.news(KEY, 60))
    await asyncio.sleep(0)
    api.objects[fleet_path("")] = {"metadata": {"resourceVersion": "10"}, "items": []}

    await fleets.sweep("")

    async with asyncio.timeout(5):
        await waiting
    assert fleets.known(KEY) is None


def listed(name: str, uid: str, revision: int) -> Json:
    """Return an object of a list that names objects only."""
    about = {"namespace": "rl", "name": name, "uid": uid, "resourceVersion": str(revision)}
    return {"metadata": about}


async def test_a_sweep_takes_what_the_watch_did_not_bring(fleets: Supervisor, api: FakeApi) -> None:
    fleets.deliver("ADDED", fleet("a", 5))
    fleets.deliver("ADDED", fleet("k", 5, "known"))
    there = [listed("qwen", "b", 9), listed("known", "k", 5), listed("new", "n", 8)]
    api.objects[fleet_path("")] = {"metadata": {"resourceVersion": "10"}, "items": there}
    api.objects[fleet_path(*KEY)] = fleet("b", 9)
    api.objects[fleet_path("rl", "new")] = fleet("n", 8, "new")

    await fleets.sweep("")

    assert uid_of(fleets) == "b"
    assert fleets.known(("rl", "new")) is not None
    # What is known is not read again.
    assert f"GET {fleet_path('rl', 'known')}" not in api.asked


def counted() -> list[dict[str, str]]:
    return [s.labels for f in metrics.ROLLOUTS.collect() for s in f.samples]


async def test_a_fleet_that_was_made_again_gets_a_driver_of_its_own(
    fleets: Supervisor, kube: KubeClient, api: FakeApi
) -> None:
    api.error = 500
    fleets.deliver("ADDED", fleet("a", 5))
    fleets.drive_under(services(kube))
    first = fleets.driver_of(KEY)
    await asyncio.sleep(0.05)
    fleets.deliver(None, fleet("a", 6))
    same = fleets.driver_of(KEY)

    fleets.deliver(None, fleet("b", 9))
    second = fleets.driver_of(KEY)
    await asyncio.sleep(0.05)

    assert first is not None
    assert first is same
    assert second is not None
    assert second.uid == "b"
    assert fleets.driver_of(KEY) is second
    await fleets.end_drivers()
    assert fleets.driver_of(KEY) is None


async def test_a_sweep_drives_a_fleet_again_whose_driver_took_a_404_for_its_deletion(
    fleets: Supervisor, kube: KubeClient, api: FakeApi
) -> None:
    fleets.deliver("ADDED", fleet("a", 5))
    fleets.drive_under(services(kube))

    async def is_over() -> bool:
        return fleets.driver_of(KEY) is None

    await seconds_until(is_over)
    api.errors[fleet_path(*KEY) + "/status"] = 500
    there = {"metadata": {"resourceVersion": "10"}, "items": [listed("qwen", "a", 5)]}
    api.objects[fleet_path("")] = there

    await fleets.sweep("")
    again = fleets.driver_of(KEY)
    await fleets.sweep("")

    assert again is not None
    assert fleets.driver_of(KEY) is again
    await fleets.end_drivers()
    await fleets.sweep("")
    assert fleets.driver_of(KEY) is None


async def test_a_driver_takes_no_other_fleet_for_its_own(kube: KubeClient) -> None:
    driver = Reconciler(KEY, fleet("a", 5), services(kube))

    with pytest.raises(Missing):
        driver.deliver(fleet("b", 9))
