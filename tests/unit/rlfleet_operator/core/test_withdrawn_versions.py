"""A version that left the spec and is set again is another rollout, also after a dry run."""

from dataclasses import replace
from typing import Any

import pytest

from rlfleet_operator.core.model.actions import Prepare, Update
from rlfleet_operator.core.model.world import World
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.rollout.next_rollout import current, is_requested
from rlfleet_operator.core.simulation import model_fleet
from rlfleet_operator.core.simulation.model_worker import Effect
from rlfleet_operator.core.simulation.preview import with_preview
from rlfleet_operator.core.status.fleet import status_of
from rlfleet_operator.crd.fleet_status import FleetStatus
from rlfleet_operator.crd.rollout_spec import RolloutSpec
from rlfleet_operator.crd.rollout_status import RolloutStatus
from tests import fleets, workers


def fleet() -> World:
    """Return a fleet at rest that serves step-1."""
    return fleets.at_rest(fleets.world({"replicas": 3, "weightVersion": "step-1"}))


def asking(seen: World, version: str | None, **rules: Any) -> World:
    made = RolloutSpec.model_validate(rules)
    return fleets.asking(seen, weight_version=version, rollout=made)


def withdrawn(seen: World) -> World:
    """Return the fleet after the operator saw that no version is requested."""
    seen = asking(seen, None)
    return model_fleet.recorded(seen, plan(seen))


def driven(seen: World, version: str) -> World:
    """Return the fleet after a trainer changed each worker at its sidecar."""
    for ordinal in range(3):
        seen = fleets.changed(seen, ordinal, proved=version, installed=version, prepared=version)
    return model_fleet.recorded(seen, plan(seen))


def rest(seen: World) -> World:
    """Return the end, with the status that it has come to."""
    end = fleets.at_rest(seen)
    return model_fleet.recorded(end, plan(end))


def status(seen: World) -> FleetStatus:
    return fleets.readable(seen.fleet.status)


def rollout(seen: World) -> RolloutStatus:
    assert seen.fleet.status.rollout is not None
    return seen.fleet.status.rollout


def versions(seen: World) -> list[str | None]:
    return [worker.proved for worker in seen.desired]


def reasons(seen: World) -> dict[str, str]:
    return {c.type: c.reason for c in status(seen).conditions}


def test_a_cancelled_rollout_is_shown_by_a_dry_run_and_begins_again_after_it() -> None:
    begun = asking(fleet(), "step-2")
    cancelled = withdrawn(model_fleet.recorded(begun, plan(begun)))
    dry = rest(asking(cancelled, "step-2", dryRun=True))

    assert rollout(cancelled).phase == "Superseded"
    assert with_preview(dry, status(dry)).preview[0].startswith("step-1 to step-2 by Rolling")
    assert reasons(dry) == {"Ready": "AllServing", "WeightsSynced": "DryRun"}
    wet = rest(asking(dry, "step-2"))
    assert (rollout(wet).id, rollout(wet).phase) == (rollout(cancelled).id + 1, "Completed")
    assert versions(wet) == ["step-2"] * 3


@pytest.mark.parametrize("version", ["step-1", "step-2"])
def test_a_dry_run_leaves_what_a_trainer_loaded_after_a_completed_rollout(version: str) -> None:
    seen = asking(driven(withdrawn(fleet()), "step-7"), version, dryRun=True)
    for _ in range(4):
        seen = model_fleet.settled(seen)
        step = plan(seen)
        assert not [a for a in step.actions if isinstance(a, Prepare | Update)]
        seen = replace(model_fleet.recorded(seen, step), moment=seen.moment + 60)

    assert status(seen).serving == "step-7"
    assert is_requested(seen)
    assert versions(rest(asking(seen, version))) == [version] * 3


def test_a_step_back_that_is_rejected_leaves_what_a_trainer_loaded() -> None:
    bounds = {"minVersion": "step-5", "onViolation": "Unready"}
    seen = driven(withdrawn(fleet()), "step-7")
    seen = asking(seen, "step-1")
    strict = fleets.fleet({"staleness": bounds}).spec.staleness

    assert versions(fleets.at_rest(fleets.asking(seen, staleness=strict))) == ["step-7"] * 3


def test_what_an_earlier_operator_recorded_is_withdrawn_by_its_empty_target() -> None:
    known = workers.recorded("step-2", "Completed") | {"target": ""}
    seen = workers.world(
        workers.worker(0),
        weightVersion="step-2",
        status=known,
        rollout={"dryRun": True},
    )
    assert not rollout(seen).withdrawn

    assert current(seen) is None
    written = status_of(seen, None).rollout
    assert written is not None
    assert written.withdrawn
    assert written.phase == "Completed"


def test_a_version_that_came_back_is_recorded_again() -> None:
    again = asking(withdrawn(fleet()), "step-1")
    again = model_fleet.recorded(again, plan(again))

    assert (rollout(again).id, rollout(again).withdrawn) == (2, False)
    assert not is_requested(again)


def test_a_new_worker_that_rejects_its_peers_version_stalls_a_fleet_without_a_target() -> None:
    """No rollout is under way, so that no deadline would report it."""
    seen = withdrawn(fleet())
    new = replace(seen.workers[0], pod=None, report=None)
    seen = replace(seen, workers=(new, *seen.workers[1:]))

    end = fleets.at_rest(seen, {"step-1": Effect.REFUSED})

    told = {one.type: one for one in status_of(end, None).conditions}
    assert told["Stalled"].reason == "CheckpointInvalid"
    assert told["Stalled"].message.startswith("step-1 rejected by qwen-0: ")
    assert "Reconciling" not in told
