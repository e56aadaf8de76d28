"""How requests are named and counted, and which of them is struck."""

import json

import pytest

from faults.ledger import Ledger, api_key, sidecar_key
from faults.plan import Place, Plan, Side

POD = json.dumps({"metadata": {"name": "qwen-0"}}).encode()
EVENT = json.dumps({"metadata": {"generateName": "qwen."}, "reason": "RolloutStarted"}).encode()
FLEETS = "/apis/rlfleet.dev/v1alpha1/namespaces/rl/rlinferencefleets"


@pytest.mark.parametrize(
    ("method", "path", "body", "key"),
    [
        ("POST", "/api/v1/namespaces/rl/pods", POD, "POST pods qwen-0"),
        ("PATCH", "/api/v1/namespaces/rl/pods/qwen-0", b"{}", "PATCH pods qwen-0"),
        ("PATCH", "/api/v1/namespaces/rl/pods/qwen-0/status", b"{}", "PATCH pods/status qwen-0"),
        ("PATCH", f"{FLEETS}/qwen/status", b"{}", "PATCH rlinferencefleets/status qwen"),
        ("POST", "/api/v1/namespaces/rl/events", EVENT, "POST events RolloutStarted"),
    ],
)
def test_a_write_is_named_by_what_it_is_about(
    method: str, path: str, body: bytes, key: str
) -> None:
    assert api_key(method, path, body) == key


def test_a_command_is_named_by_its_verb_and_worker() -> None:
    assert sidecar_key("/v1/rl/update_weights", "qwen-1") == "update_weights qwen-1"


def plan(occurrence: int) -> Plan:
    return Plan(workload="change", side=Side.API, key="a", occurrence=occurrence, mode="reply-lost")


def test_the_fault_strikes_one_occurrence_and_no_other() -> None:
    ledger = Ledger(plan(2))
    ledger.open()

    struck = [ledger.strikes(Side.API, key) for key in ("a", "b", "a", "a")]

    assert struck == [None, None, "reply-lost", None]
    assert ledger.fired_at is not None


def test_the_same_words_on_another_side_are_another_request() -> None:
    ledger = Ledger(plan(1))
    ledger.open()

    assert ledger.strikes(Side.ENGINE, "a") is None
    assert ledger.fired_at is None


def test_nothing_is_counted_or_struck_before_the_ledger_is_open() -> None:
    ledger = Ledger(plan(1))

    assert ledger.strikes(Side.API, "a") is None
    ledger.open()

    assert ledger.places == []
    assert ledger.strikes(Side.API, "a") == "reply-lost"
    assert ledger.places == [Place(Side.API, "a", 1)]


def test_what_a_sidecar_does_by_itself_is_no_write_of_the_operator() -> None:
    ledger = Ledger(None)
    ledger.wrote_at = 0.0

    ledger.strikes(Side.ENGINE, "pause qwen-0")
    assert ledger.wrote_at == 0.0

    ledger.strikes(Side.SIDECAR, "prepare qwen-0")
    assert ledger.wrote_at > 0.0
