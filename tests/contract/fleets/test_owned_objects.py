"""What stands around a fleet, when the API server does not do what is asked."""

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from rlfleet_operator.core.manifests import pod_manifest
from rlfleet_operator.core.model.actions import CreatePod, DeletePod, PodAction
from rlfleet_operator.errors import Conflict, Forbidden, Refused, Retryable
from rlfleet_operator.kube import apply
from rlfleet_operator.kube.client import KubeClient, fleet_path, object_path
from rlfleet_operator.kube.lease import LeaseTerm
from rlfleet_operator.reconcile import owned_objects
from rlfleet_operator.reconcile.owned_objects import OwnedObjects
from tests import fleets
from tests.fakes.kube import FakeApi, serving

FLEET = fleets.fleet()
SECRET = object_path("rl", "secrets", "qwen-admin")
PODS = object_path("rl", "pods")
THERE = {"metadata": {"uid": FLEET.uid}}
DEFAULTS = pod_manifest.Defaults("worker:1")


@pytest.fixture
def api() -> FakeApi:
    """An API server that has the fleet and nothing else."""
    api = FakeApi()
    api.objects[fleet_path("rl", "qwen")] = THERE
    return api


@pytest.fixture
async def kube(api: FakeApi) -> AsyncIterator[KubeClient]:
    async with serving(api) as kube:
        yield kube


@pytest.fixture
def kept(kube: KubeClient, monkeypatch: pytest.MonkeyPatch) -> OwnedObjects:
    """An upkeep that is done in every look."""
    for name in ("_SOON_S", "_LATER_S", "_RENEW_S", "INTERVAL_S"):
        monkeypatch.setattr(owned_objects, name, 0.0)
    return OwnedObjects(kube, LeaseTerm(), lambda: FLEET)


def reported(kept: OwnedObjects, after_s: float = 0.0) -> str | None:
    """Return the error in status so many seconds after it began."""
    return kept.trouble.for_status(kept.trouble.since + after_s) if kept.trouble else None


async def test_all_is_made_and_the_token_known(
    kept: OwnedObjects, api: FakeApi, kube: KubeClient
) -> None:
    await kept.look(FLEET)

    assert kept.trouble is None
    assert set(api.objects) == {
        fleet_path("rl", "qwen"),
        object_path("rl", "services", "qwen"),
        object_path("rl", "services", "qwen-workers"),
        object_path("rl", "poddisruptionbudgets", "qwen"),
        SECRET,
    }
    assert await kept.token() == (await apply.known_token(kube, FLEET)).token


async def test_workers_that_refuse_the_token_have_it_read_once(
    kube: KubeClient, api: FakeApi
) -> None:
    """After a replacement without an overlap each answer is Unauthorized, for up to a minute."""
    kept = OwnedObjects(kube, LeaseTerm(), lambda: FLEET)
    await kept.look(FLEET)
    api.asked.clear()

    tokens = await asyncio.gather(*(kept.renew() for _ in range(50)))

    assert api.asked == [f"GET {SECRET}"]
    assert {one.token for one in tokens} == {await kept.token()}


async def test_a_revision_that_a_worker_has_mounted_has_the_token_read_once(
    kube: KubeClient, api: FakeApi
) -> None:
    kept = OwnedObjects(kube, LeaseTerm(), lambda: FLEET)
    await kept.look(FLEET)
    data = api.objects[SECRET].setdefault("data", {})
    data |= {"token": _encoded("new"), "previous": _encoded("old"), "revision": _encoded("2")}
    api.asked.clear()

    await kept.keep_up({None})
    assert api.asked == []
    for _ in range(3):
        await kept.keep_up({None, "2"})

    assert api.asked == [f"GET {SECRET}"]
    assert (await kept.token(), kept.token_revision) == ("new", "2")
    assert kept.again_in_s() == owned_objects.INTERVAL_S


async def test_a_revision_that_was_read_too_early_is_read_again_soon(
    kube: KubeClient, api: FakeApi
) -> None:
    kept = OwnedObjects(kube, LeaseTerm(), lambda: FLEET)
    await kept.look(FLEET)

    await kept.keep_up({"2"})

    assert kept.token_revision is None
    assert kept.again_in_s() < owned_objects.INTERVAL_S


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def test_a_token_counts_on_while_it_cannot_be_read_again(
    kept: OwnedObjects, api: FakeApi
) -> None:
    await kept.look(FLEET)
    token, api.error = await kept.token(), 503

    with pytest.raises(Retryable):
        await kept.renew()

    assert await kept.token() == token


async def test_a_fleet_that_was_made_again_is_looked_after_at_once(
    kube: KubeClient, api: FakeApi
) -> None:
    """Its generation is 1, as that of the one before was."""
    kept, again = OwnedObjects(kube, LeaseTerm(), lambda: FLEET), replace(FLEET, uid="f-2")
    await kept.look(FLEET)
    before = await kept.token()
    api.objects.clear()

    await kept.look(again)

    assert await kept.token() != before
    owners = [o["metadata"]["ownerReferences"][0]["uid"] for o in api.objects.values()]
    assert set(owners) == {"f-2"}
    assert len(owners) == 4


@pytest.mark.parametrize("error", [429, 500, 503])
async def test_a_temporary_error_is_reported_only_if_it_lasts(
    kept: OwnedObjects, api: FakeApi, error: int
) -> None:
    """kstatus takes Stalled for a failure, and Flux gives up at once."""
    api.error = error
    for _ in range(3):
        await kept.look(FLEET)
        assert kept.trouble is not None
        assert reported(kept) is None
    assert reported(kept, after_s=59) is None
    assert f"made {error}" in str(reported(kept, after_s=60))

    api.error = None
    await kept.look(FLEET)
    assert kept.trouble is None


async def test_a_rejection_is_reported_at_once(kept: OwnedObjects, api: FakeApi) -> None:
    api.error = 403

    await kept.look(FLEET)

    assert "made 403" in str(reported(kept))


async def test_a_token_unfit_for_a_header_is_reported_and_a_corrected_one_used(
    kept: OwnedObjects, api: FakeApi
) -> None:
    await kept.look(FLEET)
    good = api.objects[SECRET]["data"]

    api.objects[SECRET]["data"] = {"token": "//4="}
    await kept.look(FLEET)
    assert "Secret qwen-admin: data.token" in str(reported(kept))
    with pytest.raises(Refused):
        await kept.renew()

    api.objects[SECRET]["data"] = good
    await kept.look(FLEET)
    assert kept.trouble is None


async def test_a_failed_look_is_not_repeated_by_every_pass(kube: KubeClient, api: FakeApi) -> None:
    kept, api.error = OwnedObjects(kube, LeaseTerm(), lambda: FLEET), 500

    await kept.look(FLEET)
    asked = len(api.asked)
    await kept.look(FLEET)

    assert len(api.asked) == asked
    assert 0 < kept.again_in_s() <= 5


@pytest.mark.parametrize(
    ("error", "kinds"), [(500, [Retryable]), (403, [Forbidden]), (404, [])], ids=str
)
async def test_a_pod_s_error_keeps_whether_it_may_pass(
    kube: KubeClient, api: FakeApi, error: int, kinds: list[type]
) -> None:
    api.errors[PODS] = error

    found = await apply.pods(kube, FLEET, [CreatePod(0)], DEFAULTS)

    assert [type(one) for one in found] == kinds


async def test_a_pod_that_cannot_be_made_is_refused_and_the_others_are_made(
    kube: KubeClient, api: FakeApi
) -> None:
    bad = fleets.fleet({"template": {"metadata": "x"}})

    refused = await apply.pods(kube, bad, [CreatePod(0)], DEFAULTS)
    made = await apply.pods(kube, FLEET, [CreatePod(0), CreatePod(1)], DEFAULTS)

    assert [type(one) for one in refused] == [Refused]
    assert "spec.template.metadata" in str(refused[0])
    assert made == []
    assert made_in(api) == ["qwen-0", "qwen-1"]


def made_in(api: FakeApi) -> list[str]:
    """Return the names of the pods that are there."""
    return sorted(path.rpartition("/")[2] for path in api.objects if path.startswith(PODS))


def left_by_an_earlier_fleet(api: FakeApi) -> None:
    for found in api.objects.values():
        if found is not THERE:
            found["metadata"]["ownerReferences"][0]["uid"] = "f-0"


async def test_objects_of_an_earlier_fleet_are_awaited_before_they_are_reported(
    kept: OwnedObjects, api: FakeApi
) -> None:
    """After kubectl replace --force the garbage collector has not come by yet."""
    await kept.look(FLEET)
    left_by_an_earlier_fleet(api)

    await kept.look(FLEET)
    assert reported(kept, after_s=59) is None
    assert "an earlier fleet of this name" in str(reported(kept, after_s=60))
    with pytest.raises(Retryable):
        await kept.renew()

    api.objects.clear()
    await kept.look(FLEET)
    assert kept.trouble is None


async def test_a_pod_that_an_earlier_fleet_left_is_waited_for(
    kube: KubeClient, api: FakeApi
) -> None:
    await apply.pods(kube, FLEET, [CreatePod(0)], DEFAULTS)
    left_by_an_earlier_fleet(api)

    (error,) = await apply.pods(kube, FLEET, [CreatePod(0)], DEFAULTS)

    assert type(error) is Retryable


@pytest.mark.parametrize(
    ("found", "error", "kind"),
    [
        (None, None, Conflict),
        ({"uid": "f-2"}, None, Conflict),
        ({"uid": FLEET.uid, "deletionTimestamp": "2026-01-01T00:00:00Z"}, None, Conflict),
        ({"uid": FLEET.uid}, 500, Retryable),
    ],
    ids=["gone", "another by now", "being deleted", "unknown"],
)
async def test_no_pod_is_made_for_a_fleet_that_may_be_gone_and_the_rest_is_done(
    kube: KubeClient, api: FakeApi, found: dict[str, str] | None, error: int | None, kind: type
) -> None:
    """A stalled watch does not report a deletion, and the garbage collector deletes pods as fast
    as they are created."""
    path = fleet_path("rl", "qwen")
    del api.objects[path]
    if found is not None:
        api.objects[path] = {"metadata": found}
    if error is not None:
        api.errors[path] = error
    actions: list[PodAction] = [
        CreatePod(0),
        DeletePod("qwen-2", "p-2", "scaled down"),
        CreatePod(1),
    ]

    errors = await apply.pods(kube, FLEET, actions, DEFAULTS)

    assert [type(one) for one in errors] == [kind, kind]
    assert made_in(api) == []
    assert f"DELETE {PODS}/qwen-2" in api.asked
    assert api.asked.count(f"GET {path}") == 1


async def test_the_error_of_a_write_names_the_object(api: FakeApi, kube: KubeClient) -> None:
    """Kubernetes' own rejections do, the denial of a webhook does not."""
    api.error = 403

    with pytest.raises(Forbidden, match=r"^403 PATCH pods/qwen-0/status: made 403$"):
        await kube.patch(f"{PODS}/qwen-0/status", {})
    with pytest.raises(Forbidden, match=r"^403 POST pods: made 403$"):
        await kube.create(PODS, {})
    with pytest.raises(Forbidden, match=r"^403 GET: made 403$"):
        await kube.get(PODS)
