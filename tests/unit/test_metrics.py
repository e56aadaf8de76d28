"""What the operator counts of a status that it has written."""

from typing import Any

import pytest
from prometheus_client import REGISTRY

from rlfleet_operator.adapters import metrics
from tests import fleets

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
    ids=["the first", "one under way", "at once, after another", "told already", "under way"],
)
def test_each_rollout_that_ended_is_counted_once(
    before: dict[str, Any], after: dict[str, Any], more: int
) -> None:
    counted = ended("Completed")

    metrics.count_status(fleets.fleet(status=before), fleets.fleet(status=after).status)

    assert ended("Completed") - counted == more
