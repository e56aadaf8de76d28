"""Workers below the partition keep their own version, over rollouts and replaced pods."""

from dataclasses import replace
from typing import Any

import pytest

from rlfleet_contract.worker.problems import Code, Problem
from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.actions import Prepare
from rlfleet_operator.core.model.world import World
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.rollout.rollout import of_record
from rlfleet_operator.core.rollout.worker_goal import goal_of
from rlfleet_operator.core.simulation import model_fleet
from rlfleet_operator.core.simulation.model_worker import Effect
from rlfleet_operator.crd.fleet_status import Condition
from rlfleet_operator.crd.rollout_spec import RolloutSpec
from rlfleet_operator.crd.rollout_status import RolloutStatus
from tests import fleets

BREAKS = {"bad": Effect.BREAKS}


def asking(seen: World, version: str, **rules: Any) -> World:
    made = RolloutSpec.model_validate({"partition": 1, "maxUnavailable": 1, **rules})
    return fleets.asking(seen, weight_version=version, rollout=made)


def rest(seen: World, fates: dict[str, Effect] | None = None) -> World:
    """Return the end, with the status that it has come to."""
    end = fleets.at_rest(seen, fates)
    return model_fleet.recorded(end, plan(end))


def partitioned() -> World:
    """Return a fleet at rest whose first worker serves step-1, and the others step-2."""
    seen = fleets.at_rest(fleets.world({"replicas": 4, "weightVersion": "step-1"}))
    return rest(asking(seen, "step-2"))


def drained(seen: World) -> World:
    """Return the fleet after the node of its first worker was drained."""
    gone = replace(seen.workers[0], pod=None, report=None)
    return replace(seen, workers=(gone, *seen.workers[1:]))


def rollout(seen: World) -> RolloutStatus:
    assert seen.fleet.status.rollout is not None
    return seen.fleet.status.rollout


def conditions(seen: World) -> dict[str, Condition]:
    return {condition.type: condition for condition in seen.fleet.status.conditions}


def versions(seen: World) -> list[str | None]:
    return [worker.proved for worker in seen.desired]


@pytest.mark.parametrize("strategy", ["Rolling", "Barrier", "Canary"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_replaced_worker_below_the_partition_gets_its_own_version_back(
    count: int, strategy: str
) -> None:
    """The version that a rollout came from is the other workers' only, from the second on."""
    seen = partitioned()
    for number in range(count):
        seen = rest(asking(seen, f"step-{3 + number}", strategy=strategy))
    last = f"step-{2 + count}"

    assert (rollout(seen).phase, rollout(seen).kept) == ("Partitioned", "step-1")
    assert versions(rest(drained(seen))) == ["step-1", last, last, last]


def test_a_rollout_that_begins_while_the_kept_worker_is_away_keeps_its_version() -> None:
    away = drained(partitioned())
    begun = asking(away, "step-3")
    begun = model_fleet.recorded(begun, plan(begun))

    assert rollout(begun).kept == "step-1"
    assert versions(rest(begun)) == ["step-1", "step-3", "step-3", "step-3"]


@pytest.mark.parametrize(
    ("policy", "others"),
    [("Rollback", {"step-2"}), ("Hold", {"step-2", None}), ("Quarantine", {"step-2", None})],
)
def test_a_failed_version_takes_no_kept_worker_to_the_others_version(
    policy: str, others: set[str | None]
) -> None:
    failed = rest(asking(partitioned(), "bad", onFailure=policy), BREAKS)

    first, *rest_of_them = versions(rest(drained(failed), BREAKS))

    assert first == "step-1"
    assert set(rest_of_them) == others


def test_a_kept_version_that_is_gone_is_replaced_by_the_others() -> None:
    seen = rest(asking(partitioned(), "step-3"))

    end = rest(drained(seen), {"step-1": Effect.REFUSED})

    assert versions(end) == ["step-2", "step-3", "step-3", "step-3"]
    assert rollout(end).kept == "step-2"
    assert all(worker.stage is Stage.OPEN for worker in end.desired)


def test_a_kept_version_that_is_gone_in_the_first_rollout_is_replaced_by_the_new_one() -> None:
    """All workers came from the kept version, so no other version is left to serve."""
    end = rest(drained(partitioned()), {"step-1": Effect.REFUSED})

    assert versions(end) == ["step-2"] * 4
    assert all(worker.stage is Stage.OPEN for worker in end.desired)


def test_a_kept_version_that_is_gone_lets_no_worker_try_a_version_that_none_has_proved() -> None:
    seen = fleets.at_rest(fleets.world({"replicas": 4, "weightVersion": "step-1"}))
    held = rest(asking(seen, "step-2", paused=True))

    end = rest(drained(held), {"step-1": Effect.REFUSED})

    assert versions(end) == [None, *["step-1"] * 3]


@pytest.mark.parametrize(
    ("rules", "phase"), [({"paused": True}, "Paused"), ({"partition": "100%"}, "Partitioned")]
)
def test_a_held_fleet_is_stalled_by_a_worker_whose_own_version_is_gone(
    rules: dict[str, Any], phase: str
) -> None:
    """A hold has no deadline, so nothing else would report it."""
    seen = fleets.at_rest(fleets.world({"replicas": 4, "weightVersion": "step-1"}))
    held = rest(asking(seen, "step-2", **rules))
    assert rollout(held).phase == phase
    assert "Stalled" not in conditions(held)

    end = rest(drained(held), {"step-1": Effect.REFUSED})

    assert conditions(end)["Stalled"].reason == "CheckpointInvalid"
    assert conditions(end)["Stalled"].message == (
        "step-1 rejected by qwen-0: model.safetensors is truncated;"
        " publish it again, or let all workers change to another version"
    )


def test_a_worker_that_a_barrier_has_paused_resumes_below_a_new_partition() -> None:
    seen = fleets.at_rest(fleets.world({"replicas": 3, "weightVersion": "step-1"}))
    seen = asking(replace(seen, moment=seen.moment + 60), "step-2", partition=0, strategy="Barrier")
    while not any(worker.stage is Stage.PAUSED for worker in seen.workers):
        step = plan(seen)
        seen = model_fleet.recorded(seen, step)
        for action in step.actions:
            seen = model_fleet.carried_out(seen, action, {})
        seen = replace(seen, moment=seen.moment + 60)

    end = rest(asking(seen, "step-2", partition=1, strategy="Barrier"))

    assert versions(end) == ["step-1", "step-2", "step-2"]
    assert all(worker.stage is Stage.OPEN for worker in end.desired)


def test_without_a_partition_no_version_is_kept() -> None:
    seen = rest(asking(partitioned(), "step-2", partition=0))
    away = rest(drained(seen))

    assert (rollout(seen).phase, rollout(seen).kept) == ("Completed", "")
    assert versions(away) == ["step-2"] * 4
    assert rollout(rest(asking(away, "step-3"))).kept == "step-2"


def refusing(seen: World, code: Code) -> World:
    """Return the fleet whose first worker is new and has rejected its own version."""
    away = drained(seen)
    begun = next(step.world for step in model_fleet.run(away, {}) if step.world.workers[0].report)
    first = begun.workers[0]
    assert first.report is not None
    refusal = Problem.of(code, "x", version="step-1", operation=of_record(rollout(begun)).operation)
    report = first.report.model_copy(update={"refusal": refusal})
    return replace(begun, workers=(replace(first, report=report), *begun.workers[1:]))


@pytest.mark.parametrize(
    ("code", "goal"),
    [
        (Code.VERSION_NOT_FOUND, "step-2"),
        (Code.CHECKPOINT_INVALID, "step-2"),
        (Code.CHECKPOINT_UNREADABLE, "step-1"),
        (Code.CACHE_FULL, "step-1"),
        (Code.INTERNAL, "step-1"),
    ],
)
def test_a_rejection_that_may_pass_ends_nothing_that_the_partition_keeps(
    code: Code, goal: str
) -> None:
    seen = refusing(rest(asking(partitioned(), "step-3")), code)

    assert goal_of(seen.workers[0], seen, of_record(rollout(seen))) == goal


def test_a_replaced_worker_does_not_wait_for_its_own_version_after_a_rollback_either() -> None:
    failed = rest(asking(partitioned(), "bad", onFailure="Rollback"), BREAKS)
    begun = (step.plan.actions for step in model_fleet.run(drained(failed), BREAKS))

    prepares = [a for actions in begun for a in actions if isinstance(a, Prepare)]

    assert rollout(failed).reason == "Rollback"
    assert [(a.version, a.waits) for a in prepares] == [("step-1", False)]
