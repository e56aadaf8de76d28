"""Whatever dies in mid-rollout, the fleet ends at what was declared."""

import time

import pytest

from dev.shell import Shell
from tests.e2e.kills import (
    AtStage,
    aim_at_engine_core,
    delete_leader,
    freeze_sidecars,
    kill_engine_core,
    kill_operator,
    kill_sidecar,
    leader,
)
from tests.e2e.scenario import LONG, POD_S, Fleet, restarts, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]


def test_the_operator_killed_in_mid_rollout(fleet: Fleet, shell: Shell) -> None:
    pods = fleet.identities()

    with fleet.under_load() as tallies:
        fleet.declare("step-2")
        kill_operator(shell)
        status = fleet.wait_synced()

    assert status["serving"] == "step-2"
    assert tallies[0].lost == 0, tallies
    assert fleet.identities() == pods


def test_the_leader_deleted_in_mid_rollout_hands_over(fleet: Fleet, shell: Shell) -> None:
    pods, epoch, first = fleet.identities(), fleet.status()["epoch"], leader(shell)

    with fleet.under_load() as tallies:
        fleet.declare("step-2")
        fleet.wait_begun("step-2")
        delete_leader(shell, first)
        until(lambda: leader(shell) not in {"", first}, 60, "another leader")
        status = fleet.wait_synced()

    assert status["serving"] == "step-2"
    assert status["rollout"]["phase"] == "Completed"
    assert status["epoch"] > epoch
    assert tallies[0].lost == 0, tallies
    assert fleet.identities() == pods


def test_a_pod_deleted_in_mid_rollout_comes_back_at_the_target(fleet: Fleet, shell: Shell) -> None:
    before = fleet.identities()
    with fleet.under_load() as tallies:
        fleet.declare("step-3")
        shell.kubectl("delete", "pod", "qwen-1", "--wait=false")
        # Requests come until the Service routes none to it, and while it answers what it has.
        time.sleep(10)
    # Without load: an engine that ends needs a core to give its memory back.
    was = before["qwen-1"]
    until(lambda: fleet.identities().get("qwen-1", was) != was, POD_S, "another qwen-1")
    status = fleet.wait_synced()

    assert status["serving"] == "step-3"
    assert tallies[0].lost == 0, tallies
    assert fleet.identities()["qwen-0"] == before["qwen-0"]


def test_a_sidecar_killed_in_mid_rollout(fleet: Fleet, shell: Shell) -> None:
    pods = fleet.identities()

    with fleet.recorded(LONG, clients=6, stagger_s=1, worker="qwen-0") as histories:
        fleet.declare("step-2", rollout={"pauseMode": "Wait"})
        fleet.wait_begun("step-2")
        kill_sidecar(shell, "qwen-0")
        fleet.wait_restarted("qwen-0", pods["qwen-0"][1])
        status = fleet.wait_synced()

    assert status["serving"] == "step-2"
    after = fleet.identities()
    assert after["qwen-0"] == (pods["qwen-0"][0], pods["qwen-0"][1] + 1)
    assert after["qwen-1"] == pods["qwen-1"]
    assert not histories[0].lost, histories[0].lost[:3]
    assert not histories[0].mixed


def test_an_engine_killed_in_mid_rollout_comes_back_at_the_target(
    fleet: Fleet, shell: Shell
) -> None:
    before = restarts(fleet.pods()["qwen-0"])
    with fleet.recorded(LONG, clients=6, stagger_s=1, worker="qwen-0") as histories:
        fleet.declare("step-3", rollout={"pauseMode": "Wait"})
        fleet.wait_begun("step-3")
        kill_engine_core(shell, "qwen-0")
        fleet.wait_restarted("qwen-0", before)
        status = fleet.wait_synced()

    assert status["serving"] == "step-3"
    # The base model, which it came back on, answered no client.
    assert histories[0].versions <= {"step-0", "step-3"}
    assert not histories[0].mixed
    assert len({tuple(tokens) for tokens in fleet.answers().values()}) == 1


def test_sidecars_that_are_silent_for_seconds_lose_no_request(fleet: Fleet, shell: Shell) -> None:
    """The engines serve, and without a ready pod the Service would refuse connections."""
    pods = fleet.identities()
    with fleet.recorded() as histories:
        freeze_sidecars(shell, sorted(pods), 9)
        # A probe that began while they were silent has ended then.
        time.sleep(6)

    assert histories[0].replies
    assert not histories[0].lost, histories[0].lost[:3]
    assert fleet.identities() == pods


@pytest.mark.release
def test_an_engine_killed_while_it_loads_a_good_version_needs_no_person(
    fleet: Fleet, shell: Shell
) -> None:
    """A process that dies is not a bad version: it is tried there again."""
    before = restarts(fleet.pods()["qwen-0"])
    kill = AtStage(shell, "qwen-0", "Loading", aim_at_engine_core(shell, "qwen-0"))
    version = fleet.declare_until_hit(kill, "step-2", "step-3", "step-2", "step-3")

    fleet.wait_restarted("qwen-0", before)
    status = fleet.wait_synced()

    assert status["serving"] == version
    assert status["rollout"]["phase"] == "Completed"
    events = shell.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}").split()
    assert "EngineExited" in events
    assert len({tuple(tokens) for tokens in fleet.answers().values()}) == 1


def test_a_scale_up_during_a_rollout(fleet: Fleet) -> None:
    fleet.declare("step-2")
    fleet.scale(3)

    status = fleet.wait_synced()

    assert status["proved"] == "3/3"
    assert len({tuple(tokens) for tokens in fleet.answers().values()}) == 1


def test_a_fleet_that_is_deleted_leaves_nothing(shell: Shell, fleet: Fleet) -> None:
    text = shell.kubectl("get", "rlf", fleet.name, "-o", "yaml")
    text = text.replace(f"name: {fleet.name}\n  namespace", "name: short\n  namespace")
    text = text.replace("\n  replicas: 2\n", "\n  replicas: 1\n")
    shell.kubectl("create", "-f", "-", stdin=_without_identity(text))
    short = Fleet(shell, "short")
    until(lambda: len(short.pods()) == 1, 180, "its pod")
    epoch = fleet.status()["epoch"]
    kill_operator(shell)

    shell.kubectl("delete", "rlf", "short", "--timeout=20s")

    until(lambda: not short.pods(), POD_S, "no pods")
    left = shell.kubectl("get", "service,pdb,secret", "-l", "rlfleet.dev/fleet=short", "-o", "name")
    assert left == ""
    # A spec that is not changed shows no test that the fleet has no driver yet.
    fleet.wait(lambda status: status["epoch"] > epoch, POD_S, "another driver")


def _without_identity(text: str) -> str:
    """Drop what the API server gave the object that this is a copy of."""
    dropped = ("  uid:", "  resourceVersion:", "  creationTimestamp:", "  generation:")
    return "\n".join(line for line in text.splitlines() if not line.startswith(dropped))
