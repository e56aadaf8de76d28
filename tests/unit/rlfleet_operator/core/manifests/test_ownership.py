"""Whose an object is whose name a fleet needs."""

from typing import Any

import pytest

from rlfleet_operator.core.manifests.owned_objects import metadata_of
from rlfleet_operator.core.manifests.ownership import complaint
from rlfleet_operator.core.model.world import FLEET_LABEL
from tests import fleets

FLEET = fleets.fleet()
OURS = metadata_of(FLEET, "qwen")
(OWNER,) = OURS["ownerReferences"]
SET = OWNER | {"apiVersion": "apps/v1", "kind": "ReplicaSet", "uid": "s"}


def said(**metadata: Any) -> tuple[str, bool] | None:
    found = complaint({"metadata": OURS | metadata}, FLEET, "Service")
    return None if found is None else (found.message, found.may_pass)


def test_what_is_the_fleet_s_or_makes_way_is_no_matter() -> None:
    assert said() is None
    assert said(ownerReferences=[OWNER | {"controller": False}]) is None
    assert said(ownerReferences=None, deletionTimestamp="2026-01-01T00:00:00Z") is None


def test_what_an_earlier_fleet_of_the_name_left_to_the_garbage_collector_passes() -> None:
    message, may_pass = said(ownerReferences=[OWNER | {"uid": "f-0"}]) or ("", False)

    assert "Service qwen belongs to an earlier fleet of this name" in message
    assert may_pass


def test_an_orphaned_or_restored_object_is_reported_with_the_command_that_deletes_all() -> None:
    message, may_pass = said(ownerReferences=None) or ("", True)

    assert "kubectl delete svc,pdb,secret,pod -l rlfleet.dev/fleet=qwen -n rl" in message
    assert not may_pass


def test_a_pod_that_lost_its_owner_is_deleted_alone() -> None:
    pod = {"metadata": OURS | {"name": "qwen-0", "ownerReferences": None}}
    found = complaint(pod, FLEET, "Pod")

    assert found is not None
    assert found.message.endswith("delete it: kubectl delete pod qwen-0 -n rl")
    assert not found.may_pass


@pytest.mark.parametrize(
    "metadata",
    [
        {"ownerReferences": None, "labels": None},
        {"ownerReferences": None, "labels": {FLEET_LABEL: "other"}},
        {"ownerReferences": [OWNER | {"uid": "f-0", "name": "other"}]},
        {"ownerReferences": [OWNER | {"uid": "f-0", "apiVersion": "other.dev/v1"}]},
        {"ownerReferences": [SET]},
    ],
    ids=["no label", "another label", "another fleet's", "another group's", "a ReplicaSet's"],
)
def test_a_foreign_object_is_for_the_user_to_delete(metadata: dict[str, Any]) -> None:
    way_out = "delete it, or give the fleet another name"

    assert said(**metadata) == (
        f"Service qwen exists and does not belong to this fleet: {way_out}",
        False,
    )
