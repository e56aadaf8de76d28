"""What stands around a fleet's pods."""

from typing import Any

import pytest

from rlfleet_contract import api
from rlfleet_operator.core import surroundings
from rlfleet_operator.core.world import FLEET_LABEL
from tests import fleets

FLEET = fleets.fleet({"replicas": 8, "rollout": {"maxUnavailable": "25%"}})
SAMPLERS, HEADLESS = surroundings.services(FLEET)
BUDGET = surroundings.disruption_budget(FLEET)
SECRET = surroundings.secret(FLEET, "the-token")


@pytest.mark.parametrize(
    "made", [SAMPLERS, HEADLESS, BUDGET, SECRET], ids=lambda made: str(made["kind"])
)
def test_the_fleet_owns_it_and_its_deletion_waits_for_nothing(made: dict[str, Any]) -> None:
    metadata = made["metadata"]

    assert metadata["labels"][FLEET_LABEL] == "qwen"
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "rlfleet.dev/v1alpha1",
            "kind": "RLInferenceFleet",
            "name": "qwen",
            "uid": "f-1",
            "controller": True,
            "blockOwnerDeletion": False,
        }
    ]


def test_samplers_see_ready_workers_and_no_admin_port() -> None:
    assert SAMPLERS["metadata"]["name"] == "qwen"
    assert [port["port"] for port in SAMPLERS["spec"]["ports"]] == [api.ENGINE_PORT]
    assert "publishNotReadyAddresses" not in SAMPLERS["spec"]


def test_whoever_drives_a_worker_reaches_it_though_it_is_not_ready() -> None:
    assert HEADLESS["metadata"]["name"] == "qwen-workers"
    assert HEADLESS["spec"]["clusterIP"] == "None"
    assert HEADLESS["spec"]["publishNotReadyAddresses"] is True
    assert {port["port"] for port in HEADLESS["spec"]["ports"]} == {
        api.ENGINE_PORT,
        api.ADMIN_PORT,
    }


def test_a_drain_takes_no_more_workers_than_a_rollout_and_none_that_is_broken_blocks_it() -> None:
    assert BUDGET["spec"]["maxUnavailable"] == 2
    assert BUDGET["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert BUDGET["spec"]["selector"] == {"matchLabels": {FLEET_LABEL: "qwen"}}


@pytest.mark.parametrize(
    ("found", "token"),
    [
        ({"data": {"token": "dGhlLXRva2Vu"}}, "the-token"),
        ({"data": {}}, ""),
        ({"data": None}, ""),
        ({}, ""),
    ],
    ids=["a token", "another key", "null", "nothing"],
)
def test_a_secret_s_token_is_read(found: dict[str, Any], token: str) -> None:
    assert SECRET["stringData"] == {"token": "the-token"}
    assert surroundings.token_in(found) == token
