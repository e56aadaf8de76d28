"""What the operator counts of statuses and reports, and what a scrape shows of a fleet."""

from typing import Any

import pytest
from prometheus_client import REGISTRY

from rlfleet_contract.worker.report import Timings
from rlfleet_operator import metrics
from rlfleet_operator.core.metrics.additions import Additions
from tests import fleets, workers


@pytest.fixture(autouse=True)
def uncounted() -> None:
    """Forget what other tests of this process have counted of their fleet, which has this name."""
    metrics.forget("rl", "qwen")


def series(**labels: str) -> dict[str, float]:
    """Return all metrics of a fleet by name and labels."""
    told = {}
    for family in REGISTRY.collect():
        for sample in family.samples:
            if labels.items() <= sample.labels.items():
                rest = "/".join(v for k, v in sample.labels.items() if k not in labels)
                told[f"{sample.name} {rest}".strip()] = sample.value
    return told


AT = "2026-01-01T00:00:00Z"


def rollout(number: int, phase: str) -> dict[str, Any]:
    version = f"step-{number}"
    return {"rollout": {"id": number, "to": version, "phase": phase, "startedAt": AT}}


def ended(result: str) -> float:
    labels = {"namespace": "rl", "fleet": "qwen", "result": result}
    return REGISTRY.get_sample_value("rlfleet_rollouts_total", labels) or 0.0


@pytest.mark.parametrize(
    ("before", "after", "more"),
    [
        ({}, rollout(1, "Completed"), 1),
        (rollout(1, "Updating"), rollout(1, "Completed"), 1),
        (rollout(1, "Completed"), rollout(2, "Completed"), 1),
        (rollout(1, "Completed"), rollout(1, "Completed"), 0),
        (rollout(1, "Completed"), rollout(2, "Updating"), 0),
    ],
    ids=["the first", "one under way", "at once, after another", "counted already", "under way"],
)
def test_each_rollout_that_ended_is_counted_once(
    before: dict[str, Any], after: dict[str, Any], more: int
) -> None:
    counted = ended("Completed")

    metrics.count_status(fleets.fleet(status=before), fleets.fleet(status=after).status)

    assert ended("Completed") - counted == more


def test_the_counters_of_a_fleet_begin_at_0_and_end_with_it() -> None:
    """A counter that appears at 1 is no increase: no alert would see the first failure."""
    metrics.begin("rl", "fresh")
    begun = series(namespace="rl", fleet="fresh")

    assert begun["rlfleet_rollouts_total Failed"] == 0
    assert begun["rlfleet_rejections_total CheckpointInvalid"] == 0
    assert begun["rlfleet_window_seconds_count"] == 0
    assert set(begun.values()) == {0}
    metrics.forget("rl", "fresh")
    assert series(namespace="rl", fleet="fresh") == {}


def test_a_fleet_s_gauges_are_replaced_and_end_with_it() -> None:
    world = workers.world(*(workers.worker(n) for n in range(5)), statusWorkerLimit=2)
    status = fleets.fleet(status={"target": "step-1", "serving": "step-1"}).status

    metrics.show(world, status)
    begun = series(namespace="rl", fleet="qwen")
    metrics.show(world, status.model_copy(update={"serving": "step-2"}))
    found = series(namespace="rl", fleet="qwen")

    assert begun["rlfleet_workers Serving"] == 5
    assert begun["rlfleet_version_info serving/step-1"] == 1
    assert "rlfleet_version_info serving/step-1" not in found
    assert found["rlfleet_version_info serving/step-2"] == 1
    metrics.forget("rl", "qwen")
    assert series(namespace="rl", fleet="qwen") == {}


def test_a_fleet_whose_object_cannot_be_parsed_shows_its_conditions() -> None:
    told = [{"type": "Stalled", "status": "True", "reason": "InvalidObject"}]

    metrics.FLEETS.show_conditions("rl", "broken", told)

    found = series(namespace="rl", fleet="broken")
    assert found["rlfleet_condition Stalled/InvalidObject"] == 1
    metrics.FLEETS.clear()
    assert series(namespace="rl", fleet="broken") == {}


def test_reports_are_counted_by_what_they_add() -> None:
    metrics.begin("rl", "qwen")
    change = Timings(window_s=0.2, reload_s=0.1)

    metrics.count("rl", "qwen", [Additions(change=change, prepared_bytes=7)])
    metrics.count("rl", "qwen", [Additions(exits=2), Additions(failure="ProofFailed")])
    metrics.count("rl", "qwen", [Additions(rejection="CacheFull")])

    found = series(namespace="rl", fleet="qwen")
    assert found["rlfleet_window_seconds_count"] == 1
    assert found["rlfleet_window_seconds_bucket 0.25"] == 1
    assert found["rlfleet_window_seconds_bucket 0.1"] == 0
    assert found["rlfleet_change_step_seconds_sum reload"] == 0.1
    assert found["rlfleet_prepared_bytes_total"] == 7
    assert found["rlfleet_load_failures_total EngineExited"] == 2
    assert found["rlfleet_load_failures_total ProofFailed"] == 1
    assert found["rlfleet_rejections_total CacheFull"] == 1
    metrics.forget("rl", "qwen")


def test_only_rollouts_that_completed_have_a_duration() -> None:
    metrics.begin("rl", "qwen")
    for number, phase in enumerate(("Completed", "Failed")):
        ended = rollout(number, phase)
        ended["rollout"]["seconds"] = 4.0
        metrics.count_status(fleets.fleet(status={}), fleets.fleet(status=ended).status)

    found = series(namespace="rl", fleet="qwen")
    assert found["rlfleet_rollout_seconds_count"] == 1
    assert found["rlfleet_rollout_seconds_sum"] == 4
    metrics.forget("rl", "qwen")
