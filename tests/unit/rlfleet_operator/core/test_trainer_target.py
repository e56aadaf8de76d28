"""A target that a trainer recorded counts as weightVersion does, until the spec names one."""

from dataclasses import replace

import pytest

from rlfleet_operator.core.model.world import World
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.rollout.next_rollout import is_requested
from rlfleet_operator.core.rollout.rollout import Reason, of_record
from rlfleet_operator.core.simulation.model_fleet import recorded
from rlfleet_operator.core.simulation.model_worker import Effect
from rlfleet_operator.core.status.fleet import patch_of, status_of
from rlfleet_operator.crd.fleet_status import TrainerTarget
from rlfleet_operator.crd.rollout_status import RolloutStatus
from tests import fleets


def asked_by_trainer(seen: World, version: str) -> World:
    """Return the world after a trainer's target was recorded."""
    target = TrainerTarget(version=version, asked_at="2026-01-01T00:00:00Z")
    status = seen.fleet.status.model_copy(update={"trainer_target": target})
    return replace(seen, fleet=replace(seen.fleet, status=status))


@pytest.fixture
def driven() -> World:
    """A fleet of two without weightVersion that serves step-1 because a trainer asked for it."""
    start = fleets.world({"replicas": 2})
    return fleets.at_rest(asked_by_trainer(start, "step-1"))


def rollout_of(seen: World) -> RolloutStatus:
    assert seen.fleet.status.rollout is not None
    return seen.fleet.status.rollout


def test_a_trainer_s_target_is_rolled_out_to_every_worker(driven: World) -> None:
    seen = fleets.at_rest(asked_by_trainer(driven, "step-2"))

    assert {w.proved for w in seen.desired} == {"step-2"}
    assert seen.fleet.status.target == "step-2"
    assert (rollout_of(seen).id, rollout_of(seen).reason) == (2, Reason.TRAINER)
    assert rollout_of(seen).phase == "Completed"


def test_workers_get_no_command_before_status_records_the_rollout(driven: World) -> None:
    step = plan(asked_by_trainer(driven, "step-2"))

    assert step.rollout is not None
    assert step.rollout.is_new
    assert step.actions == ()


def test_the_spec_s_version_ends_the_trainer_s(driven: World) -> None:
    named = fleets.asking(driven, weight_version="step-2")
    seen = fleets.at_rest(named)

    begun = plan(named).rollout
    assert begun is not None
    assert begun.to == "step-2"
    assert {w.proved for w in seen.desired} == {"step-2"}
    assert seen.fleet.status.trainer_target is None
    assert rollout_of(seen).reason == Reason.SPEC

    observed = fleets.at_rest(fleets.asking(seen, weight_version=None))
    assert observed.fleet.status.target == ""
    assert plan(observed).rollout is None


def test_the_same_target_again_is_no_rollout(driven: World) -> None:
    assert not is_requested(asked_by_trainer(driven, "step-1"))


def test_a_trainer_s_target_survives_a_new_driver(driven: World) -> None:
    asked = asked_by_trainer(driven, "step-2")

    written = status_of(asked, plan(asked).rollout)

    assert written.trainer_target == asked.fleet.status.trainer_target
    assert patch_of(written)["trainerTarget"]["version"] == "step-2"
    assert patch_of(status_of(fleets.world(), None))["trainerTarget"] is None


def test_a_late_joiner_gets_the_trainer_s_target(driven: World) -> None:
    seen = fleets.at_rest(fleets.asking(driven, replicas=3))

    assert [w.proved for w in seen.desired] == ["step-1"] * 3


def test_a_worker_that_left_the_trainer_s_target_returns_to_it(driven: World) -> None:
    strayed = fleets.changed(driven, 0, proved="step-9", installed="step-9", prepared="step-9")

    assert {w.proved for w in fleets.at_rest(strayed).desired} == {"step-1"}


def test_a_target_that_failed_is_not_tried_again_until_another_word(driven: World) -> None:
    fates = {"bad": Effect.BREAKS}
    failed = fleets.at_rest(asked_by_trainer(driven, "bad"), fates)

    again = asked_by_trainer(failed, "bad")

    assert rollout_of(failed).phase == "Failed"
    assert not is_requested(again)
    restarted = again.fleet.spec.rollout.model_copy(update={"restart_id": "once more"})
    anew = recorded(again, plan(fleets.asking(again, rollout=restarted)))
    assert rollout_of(anew).reason == Reason.RESTART


def test_a_reason_of_a_newer_operator_is_read_as_the_spec_s(driven: World) -> None:
    newer = rollout_of(driven).model_copy(update={"reason": "Moon"})

    assert of_record(newer).reason is Reason.SPEC


def test_the_spec_s_step_is_not_taken_for_the_trainer_s() -> None:
    weights = fleets.fleet(
        {"weights": {"path": "/weights/{version}", "runId": "r", "step": 7}}
    ).spec.weights
    start = fleets.asking(fleets.world({"replicas": 1}), weights=weights)

    seen = fleets.at_rest(asked_by_trainer(start, "step-3"))

    assert (rollout_of(seen).run_id, rollout_of(seen).step) == ("", None)
