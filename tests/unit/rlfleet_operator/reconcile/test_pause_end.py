"""A wall clock that is set keeps no fleet paused for longer than its trainer asked for."""

from typing import Any

import pytest

from rlfleet_operator.clock import WallClock
from rlfleet_operator.core.model.world import Fleet, time_of
from rlfleet_operator.reconcile.pause_end import PauseEnd
from tests import fleets

DAY_S, TTL_S = 86_400.0, 1500


class Clocks:
    """A wall clock and a steady one, set by hand, and the end of a pause that goes by them."""

    def __init__(self) -> None:
        self.wall, self.steady = 1.7e9, 100.0
        self.begin()

    def begin(self) -> None:
        """Begin as another driver, which knows nothing."""
        self.end = PauseEnd(WallClock(lambda: self.wall, lambda: self.steady))

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
    clocks.end.dated(fleet)
    clocks.go(1000, step_s=step_s)

    fleet = clocks.end.dated(fleet)

    assert clocks.left_s(fleet) == pytest.approx(500, abs=1)
    clocks.go(400)
    fleet = clocks.end.dated(fleet)
    assert clocks.left_s(fleet) == pytest.approx(100, abs=1)
    assert fleet.pause_at(clocks.wall) is not None
    clocks.go(101)
    assert clocks.end.dated(fleet).pause_at(clocks.wall) is None


def test_a_driver_that_begins_after_the_step_ends_a_pause_after_its_time_to_live(
    clocks: Clocks,
) -> None:
    fleet = paused(clocks.wall + TTL_S)
    clocks.go(1000, step_s=-DAY_S)
    clocks.begin()

    assert clocks.left_s(clocks.end.dated(fleet)) == pytest.approx(TTL_S, abs=1)


def test_a_pause_that_is_asked_for_again_lasts_for_its_time_to_live_again(clocks: Clocks) -> None:
    clocks.end.dated(paused(clocks.wall + TTL_S))
    clocks.go(1000)

    again = paused(clocks.wall + TTL_S)

    assert clocks.end.dated(again) is again
    assert clocks.end.dated(fleets.fleet({"replicas": 1})).status.trainer_pause is None


def test_clocks_that_agree_change_nothing(clocks: Clocks) -> None:
    fleet = paused(clocks.wall + TTL_S)

    for _ in range(100):
        assert clocks.end.dated(fleet) is fleet
        clocks.go(10.004)
