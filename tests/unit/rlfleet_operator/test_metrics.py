"""What the operator counts of a status that it has written."""

from typing import Any

import pytest
from prometheus_client import REGISTRY

from rlfleet_operator import metrics
from tests import fleets, workers


def series(**labels: str) -> dict[str, float]:
    """Return all metrics of a fleet by name and labels."""
    told = {}
    for family in REGISTRY.collect():
        for sample in family.samples:
            if labels.items() <= sample.labels.items() and not sample.name.endswith("_created"):
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
    assert begun["rlfleet_driver_failures_total"] == 0
    assert set(begun.values()) == {0}
    metrics.forget("rl", "fresh")
    assert series(namespace="rl", fleet="fresh") == {}


def test_workers_are_counted_though_status_lists_few() -> None:
    seen = workers.world(*(workers.worker(n) for n in range(5)), statusWorkerLimit=2)

    metrics.count_workers(seen)

    assert series(namespace="rl", fleet="qwen")["rlfleet_workers Serving"] == 5
    metrics.forget("rl", "qwen")


def test_engines_that_exited_in_a_load_and_versions_that_were_refused_are_counted_apart() -> None:
    metrics.begin("rl", "qwen")
    serving = {"name": "qwen-0", "phase": "Serving", "ready": True}
    exited = {"name": "qwen-0", "phase": "Starting", "loadExits": 2}
    refused = {"name": "qwen-0", "phase": "Quarantined"}

    for before, after in ((serving, exited), (exited, exited), (serving, refused)):
        fleet = fleets.fleet(status={"workers": [before]})
        metrics.count_status(fleet, fleets.fleet(status={"workers": [after]}).status)

    found = series(namespace="rl", fleet="qwen")
    assert found["rlfleet_load_failures_total EngineExited"] == 2
    assert found["rlfleet_load_failures_total Refused"] == 1
    metrics.forget("rl", "qwen")
