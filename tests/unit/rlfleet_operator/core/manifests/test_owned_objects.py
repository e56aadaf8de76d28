"""What stands around a fleet's pods."""

import base64
from pathlib import Path
from typing import Any

import pytest

from rlfleet_contract import paths
from rlfleet_operator.core.manifests import owned_objects
from rlfleet_operator.core.manifests.owned_objects import AdminToken, UnusableTemplateError
from rlfleet_operator.core.model.world import FLEET_LABEL
from rlfleet_sidecar.http.auth import FleetToken
from tests import fleets

FLEET = fleets.fleet({"replicas": 8, "rollout": {"maxUnavailable": "25%"}})
SAMPLERS, HEADLESS = owned_objects.services(FLEET)
BUDGET = owned_objects.disruption_budget(FLEET)
SECRET = owned_objects.secret(FLEET, "the-token")


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
    assert [port["port"] for port in SAMPLERS["spec"]["ports"]] == [paths.ENGINE_PORT]
    assert "publishNotReadyAddresses" not in SAMPLERS["spec"]


def test_trainers_reach_a_worker_that_is_not_ready() -> None:
    assert HEADLESS["metadata"]["name"] == "qwen-workers"
    assert HEADLESS["spec"]["clusterIP"] == "None"
    assert HEADLESS["spec"]["publishNotReadyAddresses"] is True
    assert {port["port"] for port in HEADLESS["spec"]["ports"]} == {
        paths.ENGINE_PORT,
        paths.ADMIN_PORT,
    }


def test_a_drain_evicts_at_most_max_unavailable_and_broken_workers_do_not_block_it() -> None:
    assert BUDGET["spec"]["maxUnavailable"] == 2
    assert BUDGET["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert BUDGET["spec"]["selector"] == {"matchLabels": {FLEET_LABEL: "qwen"}}


def secret_with(**members: Any) -> dict[str, Any]:
    return {"metadata": {"name": "qwen-admin"}, **members}


def holding(token: bytes) -> dict[str, Any]:
    return secret_with(data={"token": base64.b64encode(token).decode()})


@pytest.mark.parametrize("around", ["", "\n", "\r\n", " ", "\t"], ids=repr)
def test_a_secret_s_token_is_read_as_a_sidecar_reads_it(around: str, tmp_path: Path) -> None:
    written = f"{around}the-token{around}".encode()
    (tmp_path / "token").write_bytes(written)
    sidecar = FleetToken(tmp_path / "token")

    assert SECRET["stringData"] == {"token": "the-token"}
    found = owned_objects.token_in(holding(written))
    assert (found.accepted, found.revision) == (("the-token",), None)
    sidecar.demand(f"Bearer {found.token}")


@pytest.mark.parametrize("other", ["next", "previous"])
def test_during_a_rotation_operator_and_sidecar_accept_the_same_two_tokens(
    other: str, tmp_path: Path
) -> None:
    data = {"token": "the-token", other: "another\n", "revision": "4\n", "note": "no token"}
    for key, value in data.items():
        (tmp_path / key).write_text(value)
    sidecar = FleetToken(tmp_path / "token")
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}

    found = owned_objects.token_in(secret_with(data=encoded))

    assert found == AdminToken("the-token", ("another",), "4")
    assert all(sidecar.admits(f"Bearer {one}") for one in found.accepted)
    assert not sidecar.admits("Bearer no token")
    assert sidecar.revision() == found.revision


def test_a_bad_second_token_is_refused_by_its_key() -> None:
    data = {"token": b"the-token", "next": b"two words"}
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}

    with pytest.raises(UnusableTemplateError, match=r"Secret qwen-admin: data\.next holds bytes"):
        owned_objects.token_in(secret_with(data=encoded))


@pytest.mark.parametrize(
    "found",
    [
        holding(b"\xff\xfe"),
        holding("gehe\N{LATIN SMALL LETTER I WITH DIAERESIS}m".encode()),
        holding(b"two words"),
        holding(b"two\nlines"),
        holding(b"a\x00b"),
        holding(b"\x7f"),
        holding(b""),
        holding(b" \n"),
        secret_with(data={}),
        secret_with(data={"token": None}),
        secret_with(data=None),
        secret_with(),
    ],
    ids=[
        "no text",
        "no ASCII",
        "a space",
        "a line break",
        "a zero byte",
        "a control byte",
        "empty",
        "blank",
        "another key",
        "null",
        "no data",
        "nothing",
    ],
)
def test_what_no_header_carries_is_refused_by_the_secret_s_name(found: dict[str, Any]) -> None:
    with pytest.raises(
        UnusableTemplateError, match=r"Secret qwen-admin: data\.token .*delete the Secret"
    ):
        owned_objects.token_in(found)


def test_the_message_about_a_bad_token_does_not_contain_it() -> None:
    with pytest.raises(UnusableTemplateError) as refused:
        owned_objects.token_in(holding(b"my secret"))

    assert "my" not in str(refused.value)
