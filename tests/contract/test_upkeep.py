"""What stands around a fleet, when the API server does not do what is asked."""

from collections.abc import AsyncIterator

import pytest

from rlfleet_operator import execute, upkeep
from rlfleet_operator.adapters.kube import Kube, core_path
from rlfleet_operator.adapters.lease import Term
from rlfleet_operator.core import manifests
from rlfleet_operator.core.actions import CreatePod
from rlfleet_operator.errors import Forbidden, Refused, Retryable
from rlfleet_operator.upkeep import Upkeep
from tests import fleets
from tests.fakes.kube import FakeApi, serving

FLEET = fleets.fleet()
SECRET = core_path("rl", "secrets", "qwen-admin")
DEFAULTS = manifests.Defaults("worker:1")


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
async def kube(api: FakeApi) -> AsyncIterator[Kube]:
    async with serving(api) as kube:
        yield kube


@pytest.fixture
def kept(kube: Kube, monkeypatch: pytest.MonkeyPatch) -> Upkeep:
    """An upkeep that is done in every look."""
    for name in ("_SOON_S", "_LATER_S", "INTERVAL_S"):
        monkeypatch.setattr(upkeep, name, 0.0)
    return Upkeep(kube, Term(), lambda: FLEET)


def told(kept: Upkeep, after_s: float = 0.0) -> str | None:
    """Return what status tells so many seconds after the trouble began."""
    return kept.trouble.told(kept.trouble.since + after_s) if kept.trouble else None


async def test_all_is_made_and_the_token_known(kept: Upkeep, api: FakeApi, kube: Kube) -> None:
    await kept.look(FLEET)

    assert kept.trouble is None
    assert {path.rpartition("/")[2] for path in api.objects} == {
        "qwen",
        "qwen-workers",
        "qwen-admin",
    }
    assert await kept.token() == await execute.known_token(kube, FLEET)


@pytest.mark.parametrize("error", [429, 500, 503])
async def test_an_error_that_passes_is_told_only_if_it_lasts(
    kept: Upkeep, api: FakeApi, error: int
) -> None:
    """kstatus takes Stalled for a failure, and Flux gives up at once."""
    api.error = error
    for _ in range(3):
        await kept.look(FLEET)
        assert kept.trouble is not None
        assert told(kept) is None
    assert told(kept, after_s=59) is None
    assert f"made {error}" in str(told(kept, after_s=60))

    api.error = None
    await kept.look(FLEET)
    assert kept.trouble is None


async def test_a_refusal_is_told_at_once(kept: Upkeep, api: FakeApi) -> None:
    api.error = 403

    await kept.look(FLEET)

    assert "made 403" in str(told(kept))


async def test_a_token_that_no_header_carries_is_told_and_a_mended_one_taken(
    kept: Upkeep, api: FakeApi
) -> None:
    await kept.look(FLEET)
    good = api.objects[SECRET]["data"]

    api.objects[SECRET]["data"] = {"token": "//4="}
    await kept.look(FLEET)
    assert "Secret qwen-admin: data.token" in str(told(kept))
    with pytest.raises(Refused):
        await kept.renew()

    api.objects[SECRET]["data"] = good
    await kept.look(FLEET)
    assert kept.trouble is None


async def test_a_failed_look_is_not_repeated_by_every_pass(kube: Kube, api: FakeApi) -> None:
    kept, api.error = Upkeep(kube, Term(), lambda: FLEET), 500

    await kept.look(FLEET)
    asked = len(api.asked)
    await kept.look(FLEET)

    assert len(api.asked) == asked
    assert 0 < kept.again_in_s() <= 5


@pytest.mark.parametrize(
    ("error", "kinds"), [(500, [Retryable]), (403, [Forbidden]), (404, [])], ids=str
)
async def test_a_pod_s_error_keeps_whether_it_may_pass(
    kube: Kube, api: FakeApi, error: int, kinds: list[type]
) -> None:
    api.error = error

    found = await execute.pods(kube, FLEET, [CreatePod(0)], DEFAULTS)

    assert [type(one) for one in found] == kinds


async def test_a_pod_that_cannot_be_made_is_refused_and_the_others_are_made(
    kube: Kube, api: FakeApi
) -> None:
    bad = fleets.fleet({"template": {"metadata": "x"}})

    refused = await execute.pods(kube, bad, [CreatePod(0)], DEFAULTS)
    made = await execute.pods(kube, FLEET, [CreatePod(0), CreatePod(1)], DEFAULTS)

    assert [type(one) for one in refused] == [Refused]
    assert "spec.template.metadata" in str(refused[0])
    assert made == []
    assert len(api.objects) == 2


def left_by_an_earlier_fleet(api: FakeApi) -> None:
    for found in api.objects.values():
        found["metadata"]["ownerReferences"][0]["uid"] = "f-0"


async def test_what_an_earlier_fleet_left_is_waited_for_before_it_is_told(
    kept: Upkeep, api: FakeApi
) -> None:
    """After kubectl replace --force the garbage collector has not come by yet."""
    await kept.look(FLEET)
    left_by_an_earlier_fleet(api)

    await kept.look(FLEET)
    assert told(kept, after_s=59) is None
    assert "an earlier fleet of this name" in str(told(kept, after_s=60))
    with pytest.raises(Retryable):
        await kept.renew()

    api.objects.clear()
    await kept.look(FLEET)
    assert kept.trouble is None


async def test_a_pod_that_an_earlier_fleet_left_is_waited_for(kube: Kube, api: FakeApi) -> None:
    await execute.pods(kube, FLEET, [CreatePod(0)], DEFAULTS)
    left_by_an_earlier_fleet(api)

    (error,) = await execute.pods(kube, FLEET, [CreatePod(0)], DEFAULTS)

    assert type(error) is Retryable
