"""A trainer that drives the sidecars itself: spec.weightVersion is not there."""

import httpx
import pytest

from dev.shell import Shell
from rlfleet_contract import api
from tests.e2e.kills import kill_engine_core
from tests.e2e.scenario import Fleet, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def drive(fleet: Fleet, worker: str, version: str) -> None:
    """Bring one worker to a version as a trainer does: at its sidecar."""
    address = fleet.pods()[worker]["status"]["podIP"]
    bearer = {"authorization": f"Bearer {fleet.token()}"}
    command = {"operation": f"trainer-{version}", "version": version}
    with httpx.Client(base_url=f"http://{address}:8090", headers=bearer, timeout=120) as http:
        for path in (api.PREPARE_PATH, api.UPDATE_WEIGHTS_PATH):
            reply = http.post(path, json=command)
            assert reply.status_code == 200, reply.text


def test_a_trainer_is_not_fought_and_a_late_joiner_follows_it(fleet: Fleet, shell: Shell) -> None:
    before = fleet.status()["rollout"]["id"]
    fleet.patch(weightVersion=None)
    fleet.wait(lambda status: status["target"] == "", 30, "no target")

    drive(fleet, "qwen-0", "step-2")
    fleet.wait(lambda _: fleet.versions() == {"qwen-0": "step-2", "qwen-1": "step-0"}, 30, "seen")
    # The operator passes over the fleet each few seconds; whoever fights does it at once.
    drive(fleet, "qwen-1", "step-2")
    status = fleet.wait_serving("step-2")
    assert status["readyReplicas"] == 2

    kill_engine_core(shell, "qwen-1")
    until(lambda: fleet.status()["readyReplicas"] == 1, 60, "qwen-1 out of service")
    fleet.wait(lambda status: status["readyReplicas"] == 2, 300, "qwen-1 back")

    assert fleet.versions() == {"qwen-0": "step-2", "qwen-1": "step-2"}
    assert len({tuple(tokens) for tokens in fleet.answers().values()}) == 1
    assert fleet.status()["rollout"]["id"] == before
