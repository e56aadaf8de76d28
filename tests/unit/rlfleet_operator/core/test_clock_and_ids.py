"""A clock that steps back holds nothing up, and a status that is lost gives no id again."""

from dataclasses import replace
from typing import Any

import pytest

from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Change, Exits, Stage, Timings
from rlfleet_operator.core.model.actions import Update
from rlfleet_operator.core.model.world import World
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.status.fleet import status_of
from tests import workers

HOUR, DAY = 3600.0, 86_400.0


def at(moment: float, world: World) -> World:
    return replace(world, moment=moment)


def changed(world: World) -> list[str]:
    return [a.worker for a in plan(world).actions if isinstance(a, Update)]


def test_a_clock_that_steps_back_does_not_let_a_rollout_settle_for_longer() -> None:
    status = workers.recorded("step-2", "Preparing", notBefore="2023-11-14T22:13:23Z")
    fleet = [workers.worker(n, prepared="step-2") for n in range(2)]
    world = workers.world(*fleet, weightVersion="step-2", status=status)

    assert changed(at(workers.MOMENT + 1, world)) == []
    assert changed(at(workers.MOMENT + 4, world)) == ["qwen-0"]
    assert changed(at(workers.MOMENT - HOUR, world)) == ["qwen-0"]


def test_a_clock_that_steps_back_begins_the_hold_of_the_canaries_again() -> None:
    canary = {"strategy": "Canary", "canary": {"holdSeconds": 60}}
    status = workers.recorded("step-2", "CanaryHold", canarySince="2023-11-14T22:13:20Z")
    fleet = [workers.worker(0, proved="step-2"), workers.worker(1, prepared="step-2")]
    world = workers.world(*fleet, weightVersion="step-2", status=status, rollout=canary)
    back = at(workers.MOMENT - HOUR, world)

    written = status_of(back, plan(back).rollout)

    back = replace(back, fleet=replace(back.fleet, status=written))
    assert changed(at(back.moment + 59, back)) == []
    assert changed(at(back.moment + 60, back)) == ["qwen-1"]


def test_a_clock_that_steps_back_extends_a_rollout_by_at_most_one_deadline() -> None:
    times = {"startedAt": "2023-11-14T22:13:20Z", "heldSince": None}
    status = workers.recorded("step-2", "Preparing", **times)
    rollout = {"progressDeadlineSeconds": 600}
    fleet = [workers.worker(0, prepared="step-1"), workers.worker(1)]
    world = workers.world(*fleet, weightVersion="step-2", status=status, rollout=rollout)
    back = at(workers.MOMENT + 500 - DAY, world)

    written = status_of(back, plan(back).rollout)

    assert written.rollout is not None
    assert written.rollout.started_epoch == back.moment
    back = replace(back, fleet=replace(back.fleet, status=written))
    assert stalled(at(back.moment + 599, back)) is None
    assert stalled(at(back.moment + 600, back)) == "ProgressDeadlineExceeded"


def stalled(world: World) -> str | None:
    found = status_of(world, plan(world).rollout).conditions
    return next((c.reason for c in found if c.type == "Stalled"), None)


def test_a_clock_that_steps_back_gives_no_rollout_a_negative_time() -> None:
    status = workers.recorded("step-2", "Updating", startedAt="2023-11-14T22:13:20Z")
    fleet = [workers.worker(n, proved="step-2") for n in range(2)]
    world = workers.world(*fleet, weightVersion="step-2", status=status)
    back = at(workers.MOMENT - DAY, world)

    written = status_of(back, plan(back).rollout).rollout

    assert written is not None
    assert written.seconds == 0.0


@pytest.mark.parametrize(("aged_s", "charged"), [(60.0, [1]), (601.0, []), (-DAY, [])])
def test_a_clock_that_steps_back_charges_no_replaced_pod_for_longer(
    aged_s: float, charged: list[int]
) -> None:
    status = workers.recorded("step-1", "Completed") | {"replacing": [1]}
    made = workers.pod(1, ready=False, created_at=workers.MOMENT - aged_s)
    young = replace(workers.worker(1, Stage.CLOSED), pod=made)

    written = status_of(workers.world(workers.worker(0), young, status=status), None)

    assert written.replacing == charged


KNOWN: dict[str, dict[str, Any]] = {
    "a failure": {"failure": workers.problem(Code.PROOF_FAILED, "step-1", "rollout-7")},
    "a refusal": {"refusal": workers.problem(Code.CHECKPOINT_INVALID, "step-1", "rollout-7")},
    "a change that it is in": {"operation": "rollout-7"},
    "an engine that exited": {"exits": Exits(version="step-1", operation="rollout-7", count=1)},
    "a change that ended": {
        "last_change": Change(
            operation="rollout-7", version="step-1", finished_at=0.0, timings=Timings()
        )
    },
}


@pytest.mark.parametrize("report", KNOWN.values(), ids=KNOWN)
def test_a_fleet_that_lost_its_status_counts_on_from_what_its_workers_know(
    report: dict[str, Any],
) -> None:
    world = workers.world(workers.worker(0, Stage.CLOSED, **report), workers.worker(1))

    rollout = plan(world).rollout

    assert rollout is not None
    assert rollout.id == 8


def test_an_operation_that_no_operator_gave_counts_for_nothing() -> None:
    world = workers.world(workers.worker(0, operation="rollout-x"), workers.worker(1))

    rollout = plan(world).rollout

    assert rollout is not None
    assert rollout.id == 1
