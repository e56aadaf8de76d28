"""One Event for each transition, none for a poll."""

from typing import Any

import pytest

from rlfleet_operator.core.status.events import KubeEvent, between
from rlfleet_operator.crd.fleet_status import FleetStatus
from tests.workers import recorded

AT_REST = recorded("step-1", "Completed")
STALLED = {
    "type": "Stalled",
    "status": "True",
    "reason": "RolloutFailed",
    "message": "why",
    "lastTransitionTime": "t",
    "observedGeneration": 1,
}
TIMINGS = {"window": {"minMs": 1, "medianMs": 2, "maxMs": 300}}


def status(fields: dict[str, Any]) -> FleetStatus:
    return FleetStatus.model_validate(fields)


def said(before: dict[str, Any], after: dict[str, Any]) -> list[KubeEvent]:
    return between(status(before), status(after))


def one(phase: str = "Serving", *, ready: bool = True, **fields: Any) -> dict[str, Any]:
    return {"workers": [{"name": "qwen-0", "phase": phase, "ready": ready} | fields]}


@pytest.mark.parametrize(
    "fields", [{}, AT_REST, recorded("step-2", "Reloading"), AT_REST | one(), {"rollout": None}]
)
def test_nothing_new_is_no_event(fields: dict[str, Any]) -> None:
    assert said(fields, fields) == []


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (
            {},
            recorded("step-2", "Preparing") | {},
            [KubeEvent("Normal", "RolloutStarted", "rollout 1 from step-1 to step-2")],
        ),
        (
            AT_REST,
            recorded("step-2", "Preparing", id=2),
            [KubeEvent("Normal", "RolloutStarted", "rollout 2 from step-1 to step-2")],
        ),
        (
            recorded("step-2", "Reloading"),
            recorded("step-3", "Preparing", id=2),
            [
                KubeEvent(
                    "Normal", "RolloutSuperseded", "rollout 1 to step-2 superseded by step-3"
                ),
                KubeEvent("Normal", "RolloutStarted", "rollout 2 from step-1 to step-3"),
            ],
        ),
        (
            recorded("step-2", "Failed"),
            recorded("step-3", "Preparing", id=2),
            [KubeEvent("Normal", "RolloutStarted", "rollout 2 from step-1 to step-3")],
        ),
        (recorded("step-2", "Preparing"), recorded("step-2", "Reloading"), []),
        (
            recorded("step-2", "Resuming"),
            recorded("step-2", "Completed", seconds=1.5, timings=TIMINGS) | {"proved": "2/2"},
            [
                KubeEvent(
                    "Normal",
                    "RolloutCompleted",
                    "rollout 1: 2/2 workers proved step-2 in 1.5 s, longest pause 300 ms",
                )
            ],
        ),
        (
            recorded("step-2", "Resuming"),
            recorded("step-2", "Failed") | {"conditions": [STALLED]},
            [KubeEvent("Warning", "RolloutFailed", "why")],
        ),
    ],
    ids=[
        "the first rollout",
        "the next rollout",
        "a newer one supersedes",
        "a failed one is not superseded",
        "a phase is no event",
        "completed",
        "a failure has one event, that of the stall",
    ],
)
def test_the_events_of_a_rollout(
    before: dict[str, Any], after: dict[str, Any], expected: list[KubeEvent]
) -> None:
    assert said(before, after) == expected


def test_a_rollout_that_is_complete_in_its_first_record_has_both_events() -> None:
    after = recorded("step-1", "Completed", id=2, seconds=0.0) | {"proved": "2/2"}

    assert said(AT_REST, after) == [
        KubeEvent("Normal", "RolloutStarted", "rollout 2 from step-1 to step-1"),
        KubeEvent("Normal", "RolloutCompleted", "rollout 2: 2/2 workers proved step-1 in 0.0 s"),
    ]


def test_a_rollout_of_no_worker_completes_without_figures() -> None:
    after = recorded("step-2", "Completed") | {"proved": "0/0"}

    assert said(recorded("step-2", "Preparing"), after) == [
        KubeEvent("Normal", "RolloutCompleted", "rollout 1: 0/0 workers proved step-2")
    ]


def test_the_first_rollout_of_a_fleet_leads_from_nothing() -> None:
    after = recorded("step-1", "Preparing", **{"from": ""})

    assert said({}, after)[0].message == "rollout 1 from no version to step-1"


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ([], 1),
        ([STALLED], 0),
        ([STALLED | {"message": "in other words"}], 0),
        ([STALLED | {"reason": "CheckpointInvalid"}], 1),
    ],
    ids=["begins", "continues", "continues with another message", "has another reason"],
)
def test_a_stall_has_one_event_for_each_reason(before: list[dict[str, Any]], expected: int) -> None:
    assert len(said({"conditions": before}, {"conditions": [STALLED]})) == expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (one(), one(), []),
        (one("Pausing"), one("Reloading"), []),
        (
            one("CatchingUp", ready=False),
            one(version="step-1"),
            [KubeEvent("Normal", "WorkerReady", "qwen-0 ready, serves step-1")],
        ),
        (
            one(),
            one("Quarantined", ready=False, message="ProofFailed: why"),
            [KubeEvent("Warning", "WorkerQuarantined", "qwen-0 quarantined: ProofFailed: why")],
        ),
        (
            one("Quarantined"),
            one("Quarantined", ready=False),
            [KubeEvent("Warning", "WorkerLost", "qwen-0 not ready: phase Quarantined")],
        ),
        (
            one(),
            one("Unreachable", ready=False),
            [KubeEvent("Warning", "WorkerLost", "qwen-0 not ready: phase Unreachable")],
        ),
        (
            one(),
            one("Serving", ready=False),
            [KubeEvent("Warning", "WorkerLost", "qwen-0 not ready: taken out of traffic")],
        ),
        (
            one(),
            one("Terminating", ready=False),
            [KubeEvent("Normal", "WorkerDeleted", "qwen-0 not ready: its pod is deleted")],
        ),
        ({}, one(), []),
        (one(), {}, []),
    ],
    ids=[
        "at rest",
        "changes",
        "becomes ready",
        "is quarantined",
        "loses traffic after it was quarantined",
        "is lost",
        "serves a version that may take no traffic",
        "is deleted",
        "is new",
        "is gone",
    ],
)
def test_the_events_of_a_worker(
    before: dict[str, Any], after: dict[str, Any], expected: list[KubeEvent]
) -> None:
    assert said(before, after) == expected


@pytest.mark.parametrize(("count", "expected"), [(16, 16), (17, 1), (300, 1)])
def test_many_workers_at_once_are_one_event(count: int, expected: int) -> None:
    def fleet(*, ready: bool) -> dict[str, Any]:
        return {
            "workers": [
                {"name": f"qwen-{place}", "phase": "Serving", "ready": ready}
                for place in range(count)
            ]
        }

    found = said(fleet(ready=True), fleet(ready=False))

    assert len(found) == expected
    assert found[0].type == "Warning"


def test_a_trainer_that_was_rejected_is_named_once() -> None:
    trainer = {
        "worker": "qwen-0",
        "client": "10.0.0.9 (prime)",
        "call": "POST /pause",
        "at": "2026-01-01T00:00:00Z",
    }
    after = AT_REST | {"target": "step-1", "trainerRejected": trainer}

    (event,) = said(AT_REST, after)

    assert (event.type, event.reason) == ("Warning", "TrainerRejected")
    assert "qwen-0 rejected POST /pause of trainer 10.0.0.9 (prime)" in event.message
    assert said(after, after) == []
