"""What the campaign of kills draws, and that its oracle sees what must not be."""

from typing import Any

import pytest

from tests.e2e.history import history_of
from tests.e2e.strikes import VICTIMS, Planned, Seen, is_replaced, plans
from tests.e2e.verdict import Heads, Run, is_settled, learned, violations
from tests.unit.tests.test_history import reply

KILLED = 100.0


def run(*replies: dict[str, Any], **fields: Any) -> Run:
    """A rollout from a to b in which an engine was killed, and a good reply of each."""
    good = [
        reply(sent=98.0, ended=99.0),
        reply(id="0/2", sent=110.0, ended=111.0, head=[5, 6, 7, 8], spans=[("b", 0, 8)]),
    ]
    known: dict[str, Any] = {
        "source": "a",
        "target": "b",
        "mode": "Wait",
        "victim": "engine-core",
        "struck": KILLED,
        "withdrawn": KILLED + 2,
        "phases": frozenset({"Reloading", "Completed"}),
        "status": {},
        "history": history_of([*good, *replies]),
        "ttl_s": 120,
    }
    return Run(**known | fields)


def test_a_rollout_that_needs_no_person_breaks_nothing() -> None:
    assert violations(run()) == []


@pytest.mark.parametrize(
    ("sent", "ended", "victim", "is_excused"),
    [
        (99.0, 100.1, "engine-core", True),
        (101.0, 101.1, "vllm-server", True),
        (97.0, 99.0, "engine-core", False),
        (104.0, 104.1, "engine-core", False),
        (99.0, 100.1, "sidecar", False),
        (99.0, 100.1, "pod", False),
    ],
    ids=[
        "it had it",
        "it was sent to it",
        "it was well",
        "it had no traffic",
        "it answers",
        "it drains",
    ],
)
def test_only_what_was_at_a_killed_engine_may_be_lost(
    sent: float, ended: float, victim: str, *, is_excused: bool
) -> None:
    lost = reply(id="0/3", sent=sent, ended=ended, finish="", error="ReadError")

    assert (violations(run(lost, victim=victim)) == []) is is_excused


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (reply(id="0/3", sent=1.0, ended=130.0), "took longer than 120 s"),
        (reply(id="0/3", finish="abort", tokens=3, spans=[("a", 0, 3)]), "never ended"),
        (reply(spans=[]), "lack the version of a token"),
        (reply(spans=[("a", 0, 4), ("b", 4, 8)]), "two versions in mode Wait"),
        (reply(spans=[("base", 0, 8)]), "answers of base"),
        (reply(spans=[("b", 0, 8)]), "begins as a does"),
    ],
)
def test_what_no_client_may_see_is_seen(broken: dict[str, Any], said: str) -> None:
    assert any(said in line for line in violations(run(broken)))


def test_a_change_that_keeps_requests_may_mix_them() -> None:
    mixed = reply(spans=[("a", 0, 4), ("b", 4, 8)])

    assert violations(run(mixed, mode="Keep")) == []


@pytest.mark.parametrize("phase", ["Failed", "RolledBack", "Held"])
def test_a_rollout_that_ends_badly_is_seen_in_passing_and_on_record(phase: str) -> None:
    past = {"history": [{"to": "b", "result": phase}]}

    assert violations(run(phases=frozenset({"Reloading", phase})))
    assert violations(run(status=past))


def test_what_earlier_rollouts_showed_of_a_version_counts() -> None:
    heads: Heads = learned({}, run().history)

    assert violations(run(heads=heads)) == []
    assert violations(run(heads={"c": {(1, 2, 3, 4)}}))


def status(**fields: Any) -> dict[str, Any]:
    worker = {"phase": "Serving", "version": "b", "ready": True}
    return {
        "observedGeneration": 2,
        "conditions": [{"type": kind, "status": "True"} for kind in ("WeightsSynced", "Ready")],
        "rollout": {"to": "b", "phase": "Completed"},
        "workers": [worker, worker],
    } | fields


def test_a_fleet_is_settled_when_all_of_it_serves_the_target() -> None:
    paused = {"phase": "Paused", "version": "b", "ready": True}
    worker = {"phase": "Serving", "version": "b", "ready": True}

    assert is_settled(status(), 2, "b", workers=2)
    assert not is_settled(status(), 3, "b", workers=2)
    assert not is_settled(status(), 2, "c", workers=2)
    assert not is_settled(status(), 2, "b", workers=3)
    assert not is_settled(status(workers=[worker, paused]), 2, "b", workers=2)
    assert not is_settled(status(rollout={"to": "b", "phase": "Failed"}), 2, "b", workers=2)


def test_a_seed_makes_the_same_rollouts_and_each_victim_comes_in_turn() -> None:
    drawn = plans(7, 2 * len(VICTIMS))

    assert drawn == plans(7, 2 * len(VICTIMS))
    assert drawn != plans(8, 2 * len(VICTIMS))
    assert sorted(one.victim for one in drawn) == sorted(VICTIMS * 2)
    assert all(one.source != one.target for one in drawn)
    assert [one.target for one in drawn[:-1]] == [one.source for one in drawn[1:]]


def pod(uid: str, restarts: int) -> dict[str, Any]:
    container = {"name": "engine", "restartCount": restarts}
    return {"metadata": {"uid": uid}, "status": {"containerStatuses": [container]}}


def test_nothing_counts_before_the_victim_s_successor_runs() -> None:
    before = Seen(pods={"q-0": pod("u", 0)}, operators=frozenset({"x", "y"}), leader="x")
    restarted = Seen(pods={"q-0": pod("u", 1)}, operators=frozenset({"x", "y"}), leader="y")
    replaced = Seen(pods={"q-0": pod("v", 0)}, operators=frozenset({"y", "z"}), leader="z")

    def successors(victim: str) -> list[bool]:
        planned = Planned(1, "a", "b", "Keep", victim, 0)
        return [is_replaced(planned, "q", before, now) for now in (before, restarted, replaced)]

    assert successors("engine-core") == [False, True, True]
    assert successors("pod") == [False, False, True]
    assert successors("leader") == [False, False, True]
    assert successors("operator") == [False, False, False]
    assert successors("kube-apiserver") == [True, True, True]
