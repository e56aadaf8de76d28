"""What a person sees and decides of a fleet, apart from its strategies, on real vLLM."""

import json
import sys

import pytest

from tests.e2e.scenario import Fleet, Trainer, until
from tests.e2e.test_rollout import OVERFLOWING

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

OLD, NEW = "step-0", "step-1"
PLAN = [sys.executable, "-m", "rlfleet_operator", "plan", "-f", "-"]


def test_a_dry_run_shows_what_the_change_then_does(fleet: Fleet) -> None:
    reloads = fleet.reloads()

    fleet.declare(NEW, rollout={"dryRun": True})
    fleet.wait(lambda status: bool(status.get("preview")), 60, "a preview")
    status, synced = fleet.status(), fleet.condition("WeightsSynced")
    planned = fleet.get()
    planned["spec"]["rollout"]["dryRun"] = False
    told = fleet.shell.run(*PLAN, stdin=json.dumps(planned))

    assert status["preview"][0].startswith(f"{OLD} to {NEW} by Rolling: 2 of 2 workers")
    assert {"batch 1: qwen-0", "batch 2: qwen-1"} <= set(status["preview"])
    assert [line.strip() for line in told.splitlines()[1:]] == status["preview"]
    assert (status["serving"], synced["reason"]) == (OLD, "DryRun")
    assert fleet.reloads() == reloads

    fleet.patch(rollout={"dryRun": False})
    after = fleet.wait_synced()

    assert (after["serving"], after["preview"]) == (NEW, [])
    assert fleet.reloads() == {worker: count + 1 for worker, count in reloads.items()}


def test_a_rollout_that_fails_is_held_and_no_client_waits_for_its_worker(
    fleet: Fleet, trainer: Trainer
) -> None:
    trainer.write("overflow", NEW, OVERFLOWING)
    reloads = fleet.reloads()

    with fleet.recorded(worker="qwen-0") as histories:
        fleet.declare("overflow", rollout={"onFailure": "Hold"})
        stalled = fleet.wait_stalled()
    with fleet.recorded() as others:
        pass
    status = fleet.status()

    assert stalled["reason"] == "RolloutHeld"
    assert (status["rollout"]["phase"], status["readyReplicas"]) == ("Held", 1)
    assert {w["name"]: w["phase"] for w in status["workers"]} == {
        "qwen-0": "Quarantined",
        "qwen-1": "Serving",
    }
    assert fleet.reloads() == reloads | {"qwen-0": reloads["qwen-0"] + 1}
    # A client of that pod itself gets a rejection; the Service's clients notice nothing.
    assert {reply.error[:24] for reply in histories[0].lost} == {"HTTPStatusError: Server "}
    assert all("'503 Service Unavailable'" in reply.error for reply in histories[0].lost)
    assert not others[0].lost
    assert others[0].versions == {OLD}

    fleet.declare(NEW)
    assert fleet.wait_synced()["serving"] == NEW


def test_a_version_that_is_too_old_is_reported_and_taken_out_of_traffic(fleet: Fleet) -> None:
    fleet.patch(staleness={"minVersion": NEW})
    until(lambda: "Degraded" in _conditions(fleet), 60, "Degraded")
    assert _conditions(fleet)["Degraded"]["reason"] == "StaleServing"
    assert fleet.status()["readyReplicas"] == 2

    fleet.patch(staleness={"onViolation": "Unready"})
    fleet.wait(lambda status: status["readyReplicas"] == 0, 60, "no worker ready")
    stalled = fleet.wait_stalled()
    assert stalled["reason"] == "StaleTarget"
    assert f"staleness.minVersion {NEW}" in stalled["message"]
    assert "Reconciling" not in _conditions(fleet)

    fleet.declare(NEW)
    assert fleet.wait_synced()["readyReplicas"] == 2
    assert set(_conditions(fleet)) == {"Ready", "WeightsSynced"}


def _conditions(fleet: Fleet) -> dict[str, dict[str, str]]:
    return {condition["type"]: condition for condition in fleet.status()["conditions"]}
