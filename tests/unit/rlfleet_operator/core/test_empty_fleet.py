"""A fleet that is scaled to zero looks at rest, and passes no hold."""

from dataclasses import replace
from typing import Any

import pytest

from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.actions import Update
from rlfleet_operator.core.model.world import World
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.simulation import model_fleet
from rlfleet_operator.core.simulation.model_worker import Effect
from rlfleet_operator.core.status import events
from rlfleet_operator.crd.rollout_spec import RolloutSpec
from rlfleet_operator.crd.rollout_status import RolloutStatus
from tests import fleets

FATES = {"incomplete": Effect.REFUSED, "bad": Effect.BREAKS}
MANUAL: dict[str, Any] = {"strategy": "Canary", "canary": {"promote": "Manual"}}


def fleet(replicas: int = 3) -> World:
    """Return a fleet at rest that serves step-1."""
    return fleets.at_rest(fleets.world({"replicas": replicas, "weightVersion": "step-1"}))


def asking(seen: World, version: str, **rules: Any) -> World:
    rules = {"maxUnavailable": 1, **rules}
    return fleets.asking(seen, weight_version=version, rollout=RolloutSpec.model_validate(rules))


def rest(seen: World) -> World:
    """Return the end, with the status that it has come to."""
    end = fleets.at_rest(seen, FATES)
    return model_fleet.recorded(end, plan(end))


def scaled(seen: World, *sizes: int) -> World:
    """Return the end after the fleet had each of these sizes for a while."""
    for replicas in sizes:
        seen = rest(fleets.asking(seen, replicas=replicas))
    return seen


def rollout(seen: World) -> RolloutStatus:
    assert seen.fleet.status.rollout is not None
    return seen.fleet.status.rollout


def versions(seen: World) -> list[str | None]:
    return [worker.proved for worker in seen.desired]


def reasons(seen: World) -> dict[str, str]:
    return {c.type: c.reason for c in seen.fleet.status.conditions}


@pytest.mark.parametrize("sizes", [(0, 3), (1, 3), (0, 1, 3)], ids=str)
@pytest.mark.parametrize(
    ("version", "rules", "phase"),
    [
        ("incomplete", {}, "Refused"),
        ("step-2", MANUAL, "CanaryHold"),
        ("step-2", {"paused": True}, "Paused"),
        ("step-2", {"partition": 2}, "Partitioned"),
        ("bad", {"paused": True, "onFailure": "Rollback"}, "Paused"),
    ],
    ids=["refused", "canary", "paused", "partition", "a bad version"],
)
def test_a_held_rollout_is_held_after_workers_have_left_and_come(
    version: str, rules: dict[str, Any], phase: str, sizes: tuple[int, ...]
) -> None:
    before = rest(asking(fleet(), version, **rules))

    after = scaled(before, *sizes)

    assert (rollout(before).phase, rollout(after).phase) == (phase, phase)
    assert versions(after) == versions(before)
    assert reasons(after) == reasons(before)


def test_an_empty_fleet_looks_at_rest_whatever_its_rollout_awaits() -> None:
    """Kstatus, Argo CD and ``kubectl rlf wait`` read conditions."""
    at_rest, held = scaled(fleet(), 0), scaled(rest(asking(fleet(), "step-2", paused=True)), 0)
    changed = rest(asking(at_rest, "step-2"))

    assert reasons(held) == reasons(changed) == reasons(at_rest)
    assert reasons(held) == {"Ready": "ScaledToZero", "WeightsSynced": "Proved"}
    assert (rollout(held).phase, rollout(changed).phase) == ("Waiting", "Waiting")
    assert rollout(at_rest).phase == "Completed"
    assert rollout(rest(fleets.world({"replicas": 0, "weightVersion": "a"}))).phase == "Completed"


def test_no_rollout_completes_for_want_of_workers() -> None:
    before = rest(asking(fleet(), "step-2", paused=True))
    after = scaled(before, 0)

    assert events.between(before.fleet.status, after.fleet.status) == []


def test_the_time_without_workers_does_not_count_for_the_deadline() -> None:
    empty = scaled(rest(asking(fleet(), "step-2")), 0)
    empty = rest(asking(empty, "step-3", progressDeadlineSeconds=100))
    later = replace(empty, moment=empty.moment + 10_000)

    written = model_fleet.recorded(later, plan(later))
    grown = fleets.asking(written, replicas=3)
    grown = model_fleet.settled(grown)
    grown = model_fleet.recorded(grown, plan(grown))

    assert written.fleet.status == empty.fleet.status
    assert "Stalled" not in reasons(grown)
    assert rollout(grown).held_since is None
    assert rollout(grown).held_seconds >= 10_000


def passes(seen: World) -> tuple[World, set[str]]:
    """Return the end, and every version that a worker loaded on the way."""
    loaded: set[str] = set()
    for step in model_fleet.run(seen, FATES):
        loaded |= {a.version or "" for a in step.plan.actions if isinstance(a, Update)}
        seen = step.world
    return seen, loaded


def test_a_version_that_is_set_while_the_fleet_is_empty_is_loaded_directly() -> None:
    empty = rest(asking(scaled(fleet(), 0), "step-2"))

    end, loaded = passes(fleets.asking(empty, replicas=3))

    assert versions(end) == ["step-2"] * 3
    assert loaded == {"step-2"}
    assert rollout(end).phase == "Completed"


@pytest.mark.parametrize("policy", ["Quarantine", "Rollback"])
def test_a_bad_version_that_is_set_while_the_fleet_is_empty_costs_one_worker(policy: str) -> None:
    empty = rest(asking(scaled(fleet(), 0), "bad", onFailure=policy))

    end = scaled(empty, 3)

    in_doubt = [w for w in end.desired if w.stage is Stage.DOUBT]
    assert len(in_doubt) == (policy == "Quarantine")
    assert versions(end).count("step-1") == 3 - len(in_doubt)


def test_a_version_that_is_set_while_the_fleet_is_empty_waits_for_its_promotion() -> None:
    empty = rest(asking(scaled(fleet(), 0), "step-2", **MANUAL))

    held = scaled(empty, 1, 3)
    canary = {**MANUAL["canary"], "promotedVersion": "step-2"}
    promoted = rest(asking(held, "step-2", **MANUAL | {"canary": canary}))

    assert versions(held) == ["step-2", "step-1", "step-1"]
    assert versions(promoted) == ["step-2"] * 3
    assert rollout(promoted).phase == "Completed"


def test_canaries_that_left_and_came_serve_for_the_whole_hold_again() -> None:
    canary = {"strategy": "Canary", "canary": {"count": 1, "holdSeconds": 3600}}
    seen = asking(fleet(), "step-2", **canary)
    for _ in range(8):
        seen = passed(seen)
    assert rollout(seen).phase == "CanaryHold"

    empty = passed(fleets.asking(seen, replicas=0))
    grown = fleets.asking(replace(empty, moment=empty.moment + 7200), replicas=3)
    for _ in range(8):
        grown = passed(grown)

    assert rollout(empty).canary_since is None
    assert versions(grown) == ["step-2", "step-1", "step-1"]


def passed(seen: World) -> World:
    seen = model_fleet.settled(seen)
    step = plan(seen)
    seen = model_fleet.recorded(seen, step)
    for action in step.actions:
        seen = model_fleet.carried_out(seen, action, FATES)
    return replace(model_fleet.settled(seen), moment=seen.moment + 60)


def test_a_fleet_that_has_canaries_alone_needs_no_promotion() -> None:
    end = rest(asking(fleet(1), "step-2", **MANUAL))

    assert (versions(end), rollout(end).phase) == (["step-2"], "Completed")


def test_canaries_that_were_alone_at_first_promote_nothing_for_those_that_came_and_left() -> None:
    held = scaled(asking(fleet(1), "step-2", **MANUAL, paused=True), 1)
    held = scaled(asking(held, "step-2", **MANUAL, paused=True), 3)
    held = rest(asking(held, "step-2", **MANUAL))

    shrunk = scaled(held, 1)
    grown = scaled(shrunk, 3)

    assert (rollout(held).phase, rollout(shrunk).phase) == ("CanaryHold", "CanaryHold")
    assert versions(grown) == ["step-2", "step-1", "step-1"]


def test_a_record_of_an_earlier_operator_has_no_size_and_completes_as_before() -> None:
    held = rest(asking(fleet(), "step-2", **MANUAL))
    old = held.fleet.status.model_copy(
        update={"rollout": rollout(held).model_copy(update={"replicas": None})}
    )

    end = scaled(replace(held, fleet=replace(held.fleet, status=old)), 1)

    assert rollout(end).phase == "Completed"


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("rules", [{"promote": "Manual"}, {"holdSeconds": 3600}], ids=str)
def test_a_fleet_that_goes_back_from_a_canary_needs_no_promotion(
    count: int, rules: dict[str, Any]
) -> None:
    canary = {"strategy": "Canary", "canary": {"count": count, **rules}}
    held = rest(asking(fleet(), "step-2", **canary))

    back = rest(asking(held, "step-1", **canary))

    assert rollout(held).phase == "CanaryHold"
    assert rollout(back).phase == "Completed"
    assert versions(back) == ["step-1"] * 3


def test_the_same_version_again_while_the_fleet_is_empty_needs_no_promotion() -> None:
    empty = scaled(fleet(), 0)

    again = scaled(rest(asking(empty, "step-1", restartId="again", **MANUAL)), 3)

    assert rollout(again).phase == "Completed"
    assert versions(again) == ["step-1"] * 3
