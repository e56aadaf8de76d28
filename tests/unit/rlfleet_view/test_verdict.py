"""What `wait` decides of a fleet."""

import pytest

from rlfleet_view.fleet import ObservedFleet
from rlfleet_view.verdict import SyncState, judged, summary
from tests.unit.rlfleet_view.recordings import (
    HALF_COPIED,
    fleet,
    with_deletion,
    with_rollout,
    with_status,
)


@pytest.mark.parametrize(
    ("recorded", "state", "reason"),
    [
        ("synced", SyncState.SYNCED, "Proved"),
        ("stalled", SyncState.STALLED, "VersionNotFound"),
        ("canary-hold", SyncState.BEHIND, "CanaryHold"),
        ("paused", SyncState.BEHIND, "Paused"),
        ("waiting", SyncState.BEHIND, "RollingOut"),
        ("unobserved", SyncState.BEHIND, "Unobserved"),
    ],
)
def test_a_fleet_is_what_the_operator_wrote_about_its_present_spec(
    recorded: str, state: SyncState, reason: str
) -> None:
    found = judged(fleet(recorded))

    assert (found.state, found.reason) == (state, reason)


def test_a_client_that_waits_reads_how_far_the_copies_are() -> None:
    found = with_rollout(fleet("waiting"), phase="Preparing", message="", copies=HALF_COPIED)

    assert judged(found).message.endswith("; copied 50% of 2.0 GiB, 200.0 MiB/s, 8 s left")


def at_the_next_generation(found: ObservedFleet) -> ObservedFleet:
    metadata = found.raw["metadata"]
    after = metadata | {"generation": metadata["generation"] + 1}
    return ObservedFleet(found.raw | {"metadata": after})


@pytest.mark.parametrize("recorded", ["synced", "stalled"])
def test_a_condition_of_an_earlier_spec_ends_no_wait(recorded: str) -> None:
    found = at_the_next_generation(fleet(recorded))

    assert judged(found).state is SyncState.BEHIND


def test_a_fleet_whose_status_alone_is_of_this_spec_is_not_synced() -> None:
    found = at_the_next_generation(fleet("synced"))
    observed = with_status(found, observedGeneration=found.generation)

    assert judged(observed).state is SyncState.BEHIND


def test_a_fleet_that_the_operator_has_not_seen_is_behind() -> None:
    found = ObservedFleet({"metadata": {"name": "qwen", "generation": 1}, "spec": {}})

    assert judged(found).state is SyncState.BEHIND


def test_another_declared_version_supersedes_the_one_waited_for() -> None:
    assert judged(fleet("synced"), "step-7").state is SyncState.SUPERSEDED
    assert judged(fleet("synced"), "step-1").state is SyncState.SYNCED


def test_without_a_declared_version_the_one_waited_for_may_still_come() -> None:
    followed = fleet("synced", weightVersion=None)

    assert judged(followed, "step-7").state is SyncState.BEHIND
    assert judged(followed, "step-1").state is SyncState.SYNCED


def test_a_stall_of_another_version_ends_no_wait_for_one_that_may_still_come() -> None:
    followed = fleet("stalled", weightVersion=None)

    later = judged(followed, "step-10")
    assert (later.state, later.reason) == (SyncState.BEHIND, "AnotherTarget")
    assert "target is step-9, not step-10; it is stalled: VersionNotFound: " in later.message
    assert judged(followed, "step-9").state is SyncState.STALLED
    assert judged(fleet("stalled"), "step-9").state is SyncState.STALLED
    assert judged(followed).state is SyncState.STALLED


def test_a_fleet_that_is_behind_says_what_it_waits_for() -> None:
    message = judged(fleet("waiting")).message

    assert message.startswith("rollout 9 from step-3 to step-9: 2 of 2 workers left; ")
    assert message.count("/weights/step-9 does not exist") == 1


@pytest.mark.parametrize("recorded", ["synced", "stalled", "waiting"])
def test_a_fleet_that_is_kept_in_its_deletion_says_by_what(recorded: str) -> None:
    found = with_deletion(fleet(recorded))

    assert judged(found, "step-77").state is SyncState.DELETING
    assert "kept by finalizers: example.com/keep; the operator" in judged(found).message
    assert summary(found) == judged(found).message
    assert summary(fleet(recorded)) == fleet(recorded).status["summary"]
