"""A pod of the fleet that has lost one of its labels."""

from typing import Any

import pytest

from rlfleet_operator.core.model.pod import identity_of, lost_label
from rlfleet_operator.core.model.world import FLEET_LABEL, ORDINAL_LABEL
from tests import fleets


def pod_with(labels: dict[str, str] | None, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "qwen-2", "labels": labels} | metadata}


WHOLE = identity_of(fleets.fleet(), 2)


def test_a_pod_that_has_its_labels_is_no_matter() -> None:
    assert lost_label(pod_with(WHOLE | {"team": "rl"}), fleets.fleet(), 2) is None


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        (None, "rlfleet.dev/fleet=qwen"),
        ({ORDINAL_LABEL: "2"}, "rlfleet.dev/fleet=qwen"),
        (WHOLE | {FLEET_LABEL: "other"}, "rlfleet.dev/fleet=qwen"),
        ({FLEET_LABEL: "qwen"}, "rlfleet.dev/ordinal=2"),
        (WHOLE | {ORDINAL_LABEL: "3"}, "rlfleet.dev/ordinal=2"),
    ],
    ids=str,
)
def test_the_label_that_is_missing_or_another_is_named(
    labels: dict[str, str] | None, named: str
) -> None:
    assert lost_label(pod_with(labels), fleets.fleet(), 2) == (
        f"Pod qwen-2 lost its label {named}: restore it, or delete the pod"
    )


def test_a_pod_that_ends_makes_way_by_itself() -> None:
    ending = pod_with(None, deletionTimestamp="2026-01-01T00:00:00Z")

    assert lost_label(ending, fleets.fleet(), 2) is None
