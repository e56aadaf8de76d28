"""A pod of the fleet that has lost one of its labels, or got another owner."""

from typing import Any

import pytest

from rlfleet_operator.core.model.pod import identity_of, lost_label, pod_from
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


OWNER = {"apiVersion": "rlfleet.dev/v1alpha1", "kind": "RLInferenceFleet", "name": "qwen"}
OTHER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "qwen", "uid": "other"}
EARLIER = OWNER | {"uid": "f-0"}


@pytest.mark.parametrize(
    ("owners", "uid"),
    [
        ([OWNER | {"uid": "f-1"}], "f-1"),
        ([OTHER, OWNER | {"uid": "f-1"}], "f-1"),
        ([OWNER | {"uid": "f-1"}, OTHER], "f-1"),
        ([EARLIER], "f-0"),
        ([OTHER], ""),
        (None, ""),
    ],
    ids=["alone", "after another", "before another", "an earlier fleet", "another alone", "none"],
)
def test_the_owner_is_the_fleet_whatever_other_owners_there_are(
    owners: list[dict[str, str]] | None, uid: str
) -> None:
    found = pod_from(pod_with(WHOLE, uid="p-2", ownerReferences=owners))

    assert found is not None
    assert found.owner_uid == uid
