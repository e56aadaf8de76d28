"""Every strategy in every pause mode, on real vLLM under load: what each client saw."""

from typing import Any

import pytest

from tests.e2e.history import History
from tests.e2e.scenario import LONG, Fleet

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]

OLD, NEW = "step-0", "step-1"
STRATEGIES: dict[str, dict[str, Any]] = {
    "Rolling": {"maxUnavailable": 1},
    "Barrier": {},
    "Canary": {"canary": {"count": 1}},
}


@pytest.mark.parametrize("mode", ["Keep", "Wait", "Abort"])
@pytest.mark.parametrize(
    "strategy", [pytest.param("Rolling", marks=pytest.mark.release), "Barrier", "Canary"]
)
def test_no_request_is_lost_and_each_token_has_its_version(
    fleet: Fleet, strategy: str, mode: str
) -> None:
    pods = fleet.identities()
    rules = STRATEGIES[strategy] | {"strategy": strategy, "pauseMode": mode}

    with fleet.recorded() as histories:
        fleet.declare(NEW, rollout=rules)
        status = fleet.wait_synced()
    history = histories[0]

    assert (status["serving"], status["rollout"]["phase"]) == (NEW, "Completed")
    assert fleet.identities() == pods
    assert not history.lost, history.lost[:3]
    assert not history.unfinished
    assert history.versions == {OLD, NEW}
    assert all(reply.is_reported_in_full for reply in history.replies)
    MODES[mode](history)
    if strategy == "Barrier":
        assert not history.late(OLD, NEW)
    # One prompt, greedily: what begins a reply shows the weights, and no stale cache behind it.
    # A batch may turn a near tie, so one version may begin in two ways, and never as the other.
    heads = history.heads()
    assert set(heads) == {OLD, NEW}
    assert not set(heads[OLD]) & set(heads[NEW])


def _keep(history: History) -> None:
    assert not history.aborted
    # Whether one was in flight just then is chance; contract/samplers/test_traffic.py ensures it.
    assert {tuple(reply.versions) for reply in history.mixed} <= {(OLD, NEW)}


def _wait(history: History) -> None:
    assert not history.aborted
    assert not history.mixed


def _abort(history: History) -> None:
    # That those in flight end with a mark is seen by tests/contract/samplers/test_traffic.py.
    assert not history.mixed


MODES = {"Keep": _keep, "Wait": _wait, "Abort": _abort}


def test_a_barrier_that_cannot_pause_all_serves_the_old_version_on_all(fleet: Fleet) -> None:
    answers = fleet.answers()

    history = _a_barrier_that_is_late(fleet)
    stalled, status = fleet.condition("Stalled"), fleet.status()

    assert (stalled["status"], stalled["reason"]) == ("True", "RolloutFailed")
    assert "did not pause" in stalled["message"]
    assert (status["serving"], status["rollout"]["phase"]) == (OLD, "Failed")
    assert {worker["phase"] for worker in status["workers"]} == {"Serving"}
    assert history.versions == {OLD}
    assert not history.lost
    assert fleet.answers() == answers

    fleet.patch(rollout={"restartId": "with more time", "timeouts": {"pauseSeconds": 60}})
    assert fleet.wait_synced()["serving"] == NEW


def _a_barrier_that_is_late(fleet: Fleet) -> History:
    """Have a Barrier meet requests that outlast its limit; return what the clients saw.

    Whether one of them has more than the limit before it is chance: clients without a
    processor send theirs in lumps, which end together. A rollout that met only the ends
    of such a lump has rightly gone through, and is undone and requested again.
    """
    limit = {"pauseSeconds": 1}
    for _ in range(5):
        with fleet.recorded(LONG, clients=6, stagger_s=1) as histories:
            rules = {"strategy": "Barrier", "pauseMode": "Wait", "timeouts": limit}
            fleet.declare(NEW, rollout=rules)
            fleet.wait(_is_over, 180, f"an end of the rollout to {NEW}")
        if fleet.status()["rollout"]["phase"] == "Failed":
            return histories[0]
        fleet.reset(OLD, replicas=2)
        fleet.wait_synced()
    raise AssertionError("no pause was late")


def _is_over(status: dict[str, Any]) -> bool:
    """Return whether the rollout to the new version has ended, and all workers serve."""
    rollout = status["rollout"]
    phases = {worker["phase"] for worker in status["workers"]}
    is_ended = rollout["phase"] in {"Failed", "Completed"}
    return rollout["to"] == NEW and is_ended and phases == {"Serving"}


def test_a_canary_is_held_until_a_patch_promotes_its_version(fleet: Fleet) -> None:
    canary = {"count": 1, "promote": "Manual"}
    fleet.declare(NEW, rollout={"strategy": "Canary", "canary": canary})
    held = fleet.wait_phase("CanaryHold")

    # The Service draws a worker for each request: of so many, not all go to one.
    with fleet.recorded(tokens=16, clients=16) as histories:
        pass
    assert fleet.versions() == {"qwen-0": NEW, "qwen-1": OLD}
    assert histories[0].versions == {OLD, NEW}
    assert not histories[0].mixed
    assert {w["phase"] for w in held["workers"]} == {"Serving"}

    fleet.patch(rollout={"canary": {"promotedVersion": NEW}})
    status = fleet.wait_synced()

    assert status["rollout"]["id"] == held["rollout"]["id"]
    fleet.wait_for_events("CanaryReady")


def test_a_partition_keeps_its_workers_until_it_is_moved(fleet: Fleet) -> None:
    fleet.declare(NEW, rollout={"partition": 1})
    status = fleet.wait_phase("Partitioned")
    assert fleet.versions() == {"qwen-0": OLD, "qwen-1": NEW}
    assert status["readyReplicas"] == 2

    fleet.patch(rollout={"partition": 0})
    after = fleet.wait_synced()

    assert after["rollout"]["id"] == status["rollout"]["id"]
