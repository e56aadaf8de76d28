"""An engine of two tensor-parallel ranks, each of which loads its part of a version."""

from collections.abc import Iterator

import pytest

from dev import target, zoo
from dev.demo import stage
from dev.shell import Shell
from tests.e2e.kills import AtStage, aim_at_rank
from tests.e2e.scenario import FLEET, Fleet, restarts

PAIR, WORKER = "pair", "pair-0"

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def pair(shell: Shell) -> Iterator[Fleet]:
    """A fleet of one worker with two ranks."""
    text = (stage.DEMO / "fleet.yaml").read_text().replace("replicas: 2", "replicas: 1")
    text = text.replace(f"name: {FLEET}\n", f"name: {PAIR}\n")
    ranks = "  engine:\n    tensorParallelSize: 2\n"
    text = text.replace("  engine:\n", ranks).replace("512Mi", "1Gi")
    assert ranks in text
    shell.kubectl("apply", "-f", "-", stdin=text)
    fleet = Fleet(shell, PAIR)
    fleet.wait_synced()
    yield fleet
    shell.kubectl("delete", "rlf", PAIR)


def test_both_ranks_take_up_each_version_under_load(pair: Fleet) -> None:
    pods = pair.identities()
    answers: dict[str, list[int]] = {}
    with pair.recorded() as histories:
        for version in ("step-1", "step-2", "step-1"):
            pair.declare(version, rollout={"pauseMode": "Wait"})
            worker = pair.wait_synced()["workers"][0]
            assert {"Installed", "Parameters", "Faithful"} <= set(worker["verifiedBy"])
            answer = pair.answers()[WORKER]
            assert answers.setdefault(version, answer) == answer

    assert answers["step-1"] != answers["step-2"]
    assert not histories[0].lost, histories[0].lost[:3]
    assert not histories[0].mixed
    assert pair.identities() == pods


def test_a_rank_killed_while_it_loads_comes_back_at_the_target(pair: Fleet, shell: Shell) -> None:
    before = restarts(pair.pods()[WORKER])
    kill = AtStage(shell, WORKER, "Loading", aim_at_rank(shell, WORKER, 1))
    version = pair.declare_until_hit(kill, "step-3", "step-2", "step-3", "step-2")

    # vLLM may notice a rank that dies right after its load five minutes later only.
    pair.wait_restarted(WORKER, before, 600)
    status = pair.wait_synced()

    assert status["serving"] == version


def test_a_wrong_value_in_the_last_rank_is_seen() -> None:
    name = "qwen3-moe-tp2"
    (row,) = zoo.examine(
        Shell(target.kubeconfig(), f"{zoo.NAMESPACE}-ranks", is_quiet=True), [name]
    )

    assert row.get("error") is None
    assert row["wrong"] == []
    assert row["ranks"] == 2
    assert row["spoilt"] is not None
