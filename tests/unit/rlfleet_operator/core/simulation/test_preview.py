"""What a change would do, without doing it."""

from typing import Any

import pytest

from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.actions import Update
from rlfleet_operator.core.model.world import World
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.simulation import model_fleet
from rlfleet_operator.core.simulation.model_fleet import run
from rlfleet_operator.core.simulation.preview import preview, with_preview
from rlfleet_operator.core.status.fleet import status_of
from tests import fleets
from tests.unit.rlfleet_operator.core.strategy.test_rolling import asking, at_rest, fleet, stepped


def batches(seen: World) -> list[str]:
    return [line for line in preview(seen) if line.startswith("batch")]


def test_the_batches_are_those_that_the_planner_would_send() -> None:
    seen = asking(fleet(5, maxUnavailable=2), "step-2")
    sent = [
        [a.worker for a in step.plan.actions if isinstance(a, Update)] for step in run(seen, {})
    ]

    assert [f"batch {n + 1}: {', '.join(names)}" for n, names in enumerate(filter(None, sent))] == (
        batches(seen)
    )
    assert batches(seen) == [
        "batch 1: qwen-0, qwen-1",
        "batch 2: qwen-2, qwen-3",
        "batch 3: qwen-4",
    ]


def test_it_shows_both_versions_and_the_expected_pause() -> None:
    seen = fleet()
    rollout = seen.fleet.status.rollout
    assert rollout is not None
    assert rollout.timings is not None

    assert preview(asking(seen, "step-2")) == [
        "step-1 to step-2 by Rolling: 4 of 4 workers, at most 1 at once",
        "prepare: qwen-0, qwen-1, qwen-2, qwen-3",
        "batch 1: qwen-0",
        "batch 2: qwen-1",
        "batch 3: qwen-2",
        "batch 4: qwen-3",
        "expected pause per worker: 250 ms (median of the last 1 rollouts)",
    ]


@pytest.mark.parametrize(
    ("rollout", "line"),
    [
        ({"strategy": "Barrier"}, "load and verify behind closed gates: qwen-0, qwen-1"),
        ({"strategy": "Canary"}, "batch 1: canaries, qwen-0"),
        ({"partition": 2}, "rollout.partition: ordinals below 2 keep their version"),
        ({"paused": True}, "rollout.paused is true: no batch starts until it is false"),
        (
            {"strategy": "Canary", "canary": {"promote": "Manual"}},
            "the other workers wait until rollout.canary.promotedVersion names the version",
        ),
        (
            {"strategy": "Canary", "canary": {"holdSeconds": 60}},
            "canaries serve for 60 s before the other workers change",
        ),
    ],
)
def test_it_shows_what_the_strategy_does(rollout: dict[str, Any], line: str) -> None:
    told = preview(asking(fleet(), "step-2", **rollout))

    assert any(one.startswith(line) for one in told), told


def test_nothing_to_do_is_shown() -> None:
    assert preview(fleet()) == ["nothing to do: all workers serve step-1"]


def test_a_step_back_is_shown_as_refused() -> None:
    seen = at_rest(stepped(fleet(), "step-5", 5))

    assert preview(stepped(seen, "step-4", 4))[0].startswith("refused: weights.step 4 is lower")


def test_a_new_fleet_is_shown_with_its_pods() -> None:
    told = preview(fleets.world({"replicas": 2, "weightVersion": "step-1"}))

    assert "create pods of ordinals 0, 1" in told


def test_a_large_fleet_is_reckoned_in_a_running_operator() -> None:
    seen = asking(fleet(10, maxUnavailable=4), "step-2")

    assert "3 batches of 4 workers, lowest ordinals first" in preview(seen, largest=5)


def test_a_status_shows_it_only_for_a_dry_run_that_has_something_to_show() -> None:
    def shown(seen: World) -> list[str]:
        return with_preview(seen, status_of(seen, plan(seen).rollout)).preview

    wished = asking(fleet(), "step-2", dryRun=True)

    assert shown(wished) == preview(wished)
    assert shown(asking(fleet(), "step-2")) == []
    assert shown(asking(fleet(), "step-1", dryRun=True)) == []


def test_a_phase_that_a_newer_release_wrote_is_read_by_what_the_worker_serves() -> None:
    told = [
        {"name": "qwen-0", "phase": "Dreaming", "version": "step-1", "ready": True},
        {"name": "qwen-1", "phase": "Dreaming", "ready": False},
    ]
    fleet = fleets.fleet({"replicas": 2}, status={"workers": told})

    found = model_fleet.workers_from_status(fleet, "hash")

    assert [worker.stage for worker in found] == [Stage.OPEN, Stage.CLOSED]
