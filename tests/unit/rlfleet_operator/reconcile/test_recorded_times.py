"""A wall clock that is set changes how long no pause and no hold of a canary lasts."""

from typing import Any

import pytest

from rlfleet_operator.clock import WallClock
from rlfleet_operator.core.model.world import Fleet, World, time_of
from rlfleet_operator.core.rollout.cohorts import hold_left_s, is_promoted
from rlfleet_operator.reconcile.recorded_times import RecordedTimes
from tests import fleets

DAY_S, TTL_S = 86_400.0, 1500


class Clocks:
    """A wall clock and a steady one, set by hand, and a status whose moments go by them."""

    def __init__(self) -> None:
        self.wall, self.steady = 1.7e9, 100.0
        self.begin()

    def begin(self) -> None:
        """Begin as another driver, which knows nothing."""
        self.times = RecordedTimes(WallClock(lambda: self.wall, lambda: self.steady))

    def go(self, seconds: float, *, step_s: float = 0.0) -> None:
        self.steady, self.wall = self.steady + seconds, self.wall + seconds + step_s

    def left_s(self, fleet: Fleet) -> float:
        assert fleet.status.trainer_pause is not None
        return fleet.status.trainer_pause.until_epoch - self.wall


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


def paused(until: float) -> Fleet:
    """Return a fleet that is paused until then, as status has it."""
    pause: dict[str, Any] = {"operation": "pause-1", "askedAt": time_of(until - TTL_S)}
    pause |= {"until": time_of(until), "ttlSeconds": TTL_S}
    return fleets.fleet({"replicas": 1}, status={"trainerPause": pause})


@pytest.mark.parametrize("step_s", [-DAY_S, -600.0, 600.0, DAY_S])
def test_a_clock_that_is_set_neither_lengthens_nor_shortens_a_pause(
    clocks: Clocks, step_s: float
) -> None:
    fleet = paused(clocks.wall + TTL_S)
    clocks.times.dated(fleet)
    clocks.go(1000, step_s=step_s)

    fleet = clocks.times.dated(fleet)

    assert clocks.left_s(fleet) == pytest.approx(500, abs=1)
    clocks.go(400)
    fleet = clocks.times.dated(fleet)
    assert clocks.left_s(fleet) == pytest.approx(100, abs=1)
    assert fleet.pause_at(clocks.wall) is not None
    clocks.go(101)
    assert clocks.times.dated(fleet).pause_at(clocks.wall) is None


def test_a_driver_that_begins_after_the_step_ends_a_pause_after_its_time_to_live(
    clocks: Clocks,
) -> None:
    fleet = paused(clocks.wall + TTL_S)
    clocks.go(1000, step_s=-DAY_S)
    clocks.begin()

    assert clocks.left_s(clocks.times.dated(fleet)) == pytest.approx(TTL_S, abs=1)


def test_a_pause_that_is_asked_for_again_lasts_for_its_time_to_live_again(clocks: Clocks) -> None:
    clocks.times.dated(paused(clocks.wall + TTL_S))
    clocks.go(1000)

    again = paused(clocks.wall + TTL_S)

    assert clocks.times.dated(again) is again
    assert clocks.times.dated(fleets.fleet({"replicas": 1})).status.trainer_pause is None


def test_clocks_that_agree_change_nothing(clocks: Clocks) -> None:
    fleet = paused(clocks.wall + TTL_S)

    for _ in range(100):
        assert clocks.times.dated(fleet) is fleet
        clocks.go(10.004)


def with_canary(since: float, phase: str = "CanaryHold") -> Fleet:
    """Return a fleet whose canary has served since then."""
    begun = time_of(since)
    rollout = {"id": 2, "from": "step-1", "to": "step-2", "phase": phase, "canarySince": begun}
    rollout |= {"startedAt": begun, "heldSince": begun}
    canary = {"strategy": "Canary", "canary": {"count": 1, "holdSeconds": 600}}
    spec = {"replicas": 3, "weightVersion": "step-2", "rollout": canary}
    return fleets.fleet(spec, status={"rollout": rollout})


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
def test_a_clock_that_is_set_neither_lengthens_nor_shortens_a_hold(
    clocks: Clocks, step_s: float
) -> None:
    fleet = with_canary(clocks.wall)
    for _ in range(2):
        # The second status is the one that was written after the first step.
        fleet = clocks.times.dated(fleet)
        clocks.go(200, step_s=step_s)
        fleet = clocks.times.dated(fleet)

    world = World(fleet, (), "t", clocks.wall)
    assert not is_promoted(world)
    assert hold_left_s(world) == pytest.approx(200, abs=3)
    assert fleet.status.rollout is not None
    assert fleet.status.rollout.spent_s(clocks.wall) == pytest.approx(400, abs=3)
    clocks.go(203)
    assert is_promoted(World(clocks.times.dated(fleet), (), "t", clocks.wall))


def test_an_ended_rollout_keeps_its_times(clocks: Clocks) -> None:
    fleet = with_canary(clocks.wall, "Completed")
    clocks.times.dated(fleet)
    clocks.go(10, step_s=3600)

    assert clocks.times.dated(fleet) is fleet
