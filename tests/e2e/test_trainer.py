"""A trainer that asks for versions itself: spec.weightVersion is not there."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from dev.demo import stage
from rlfleet_contract import paths
from tests.e2e.scenario import NAMESPACE, Fleet

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]


def drive(fleet: Fleet, worker: str, version: str) -> None:
    """Bring one worker to a version as a trainer does: at its sidecar."""
    address = fleet.pods()[worker]["status"]["podIP"]
    bearer = {"authorization": f"Bearer {fleet.token()}"}
    command = {"operation": f"trainer-{version}", "version": version}
    with httpx.Client(base_url=f"http://{address}:8090", headers=bearer, timeout=120) as http:
        for path in (paths.PREPARE_PATH, paths.UPDATE_WEIGHTS_PATH):
            reply = http.post(path, json=command)
            assert reply.status_code == 200, reply.text


def test_a_trainer_is_not_fought(fleet: Fleet) -> None:
    before = fleet.status()["rollout"]["id"]
    fleet.patch(weightVersion=None)
    fleet.wait(lambda status: status["target"] == "", 30, "no target")

    drive(fleet, "qwen-0", "step-2")
    fleet.wait(lambda _: fleet.versions() == {"qwen-0": "step-2", "qwen-1": "step-0"}, 120, "seen")
    # The operator passes over the fleet each few seconds; a fight would show at once.
    drive(fleet, "qwen-1", "step-2")
    status = fleet.wait_serving("step-2")
    assert status["readyReplicas"] == 2

    assert fleet.versions() == {"qwen-0": "step-2", "qwen-1": "step-2"}
    assert len({tuple(tokens) for tokens in fleet.answers().values()}) == 1
    assert fleet.status()["rollout"]["id"] == before


def broadcast(fleet: Fleet, weight_dir: str) -> None:
    """Change all workers as prime-rl does: each step to all of them, a resume in any case."""
    bearer = {"authorization": f"Bearer {fleet.token()}"}
    hosts = [f"http://{pod['status']['podIP']}:8090" for pod in fleet.pods().values()]

    def all_workers(path: str, **more: Any) -> None:
        def post(host: str) -> httpx.Response:
            return httpx.post(f"{host}{path}", headers=bearer, timeout=300, **more)

        with ThreadPoolExecutor() as pool:
            for reply in pool.map(post, hosts):
                assert reply.status_code == 200, reply.text

    all_workers("/pause", params={"mode": "keep", "clear_cache": "false"})
    try:
        all_workers("/update_weights", json={"weight_dir": weight_dir})
    finally:
        all_workers("/resume")


def test_prime_rl_changes_a_fleet_under_load_and_loses_no_request(fleet: Fleet) -> None:
    before, pods = fleet.answers(), fleet.identities()
    fleet.patch(weightVersion=None)
    fleet.wait(lambda status: status["target"] == "", 30, "no target")

    with fleet.under_load() as tallies:
        broadcast(fleet, "/data/weights/step-1")
    # One of which only the pause was seen yet serves nothing, and the other speaks for both.
    changed = {"qwen-0": "step-1", "qwen-1": "step-1"}
    fleet.wait(lambda _: fleet.versions() == changed, 120, "step-1 on both")
    status = fleet.wait_serving("step-1")

    assert tallies[0].lost == 0, tallies
    assert set(tallies[0].finished) == {"length"}
    assert status["readyReplicas"] == 2
    assert fleet.answers() != before
    assert fleet.identities() == pods


ASK = """
import json, sys, httpx
url, token = sys.argv[1:], sys.stdin.read()
method, address, *body = url
reply = httpx.request(method, address, headers={"authorization": f"Bearer {token}"},
                      content=body[0] if body else None, timeout=300)
print(json.dumps([reply.status_code, reply.json()]))
"""


def ask(fleet: Fleet, method: str, route: str, *body: str) -> tuple[int, dict[str, Any]]:
    """Ask the fleet API from a pod, by its name."""
    base = f"http://{stage.RELEASE}.{stage.OPERATOR_NAMESPACE}:8082/fleets/{NAMESPACE}/{fleet.name}"
    words = ("exec", "-i", "client", "--", "python3", "-c", ASK, method, base + route, *body)
    status, reply = json.loads(fleet.shell.kubectl(*words, stdin=fleet.token()))
    return status, reply


def test_a_trainer_with_one_url_changes_the_fleet_by_a_rollout(fleet: Fleet) -> None:
    first = fleet.status()["rollout"]["id"]
    update = paths.UPDATE_WEIGHTS_PATH
    assert ask(fleet, "POST", update, '{"version": "step-1"}')[0] == 409
    fleet.patch(weightVersion=None)

    with fleet.under_load() as tallies:
        status, said = ask(fleet, "POST", update, '{"weight_dir": "/data/weights/step-1"}')

    assert (status, said["status"]) == (200, "ok"), said
    assert [(w["name"], w["version"]) for w in said["workers"]] == [
        ("qwen-0", "step-1"),
        ("qwen-1", "step-1"),
    ]
    assert tallies[0].lost == 0, tallies
    assert "weightVersion" not in fleet.get()["spec"]
    assert fleet.status()["rollout"]["id"] == first + 1
    _, state = ask(fleet, "GET", paths.STATE_PATH)
    assert (state["ready"], state["desired_version"], state["applied_version"]) == (
        True,
        "step-1",
        "step-1",
    )
    status, said = ask(fleet, "POST", update, '{"version": "nowhere", "timeout_s": 20}')
    assert (status, said["rollout"]["phase"]) == (502, "Refused"), said
    assert fleet.versions() == {"qwen-0": "step-1", "qwen-1": "step-1"}


def test_a_trainer_pauses_changes_and_resumes_the_fleet_by_one_url(fleet: Fleet) -> None:
    pods, update = fleet.identities(), paths.UPDATE_WEIGHTS_PATH
    fleet.patch(weightVersion=None)

    with fleet.under_load() as tallies:
        status, said = ask(fleet, "POST", "/v1/rl/pause", '{"mode": "keep"}')
        assert status == 200, said
        _, state = ask(fleet, "GET", paths.STATE_PATH)
        assert (state["paused"], state["paused_by"]) == (True, "trainer")
        assert fleet.condition("Paused")["status"] == "True"
        status, said = ask(fleet, "POST", update, '{"weight_dir": "/data/weights/step-2"}')
        assert status == 200, said
        _, state = ask(fleet, "GET", paths.STATE_PATH)
        assert (state["paused"], state["applied_version"]) == (True, "step-2")
        status, said = ask(fleet, "POST", "/v1/rl/resume")
        assert status == 200, said
    seen = fleet.wait_serving("step-2")

    assert tallies[0].lost == 0, tallies
    assert (seen["readyReplicas"], fleet.identities()) == (2, pods)
    assert ask(fleet, "POST", "/v1/rl/flush_cache")[0] == 409
