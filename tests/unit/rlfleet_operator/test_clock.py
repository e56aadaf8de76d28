"""Waits are measured by the steady clock."""

import pytest

from rlfleet_operator.clock import WallClock


class Clocks:
    """A wall clock and a steady one, both set by hand."""

    def __init__(self) -> None:
        self.wall, self.steady = 1.7e9, 100.0
        self.tells = WallClock(lambda: self.wall, lambda: self.steady)


@pytest.mark.parametrize("step_s", [-3600.0, -1.0, 0.0, 3600.0])
def test_what_is_left_of_a_wait_does_not_depend_on_the_wall_clock(step_s: float) -> None:
    clocks = Clocks()
    retry_at = clocks.steady + 15
    clocks.steady += 5

    clocks.wall += 5 + step_s

    assert clocks.tells.of(retry_at) - clocks.wall == pytest.approx(10)


def test_drift_changes_no_moment_in_status() -> None:
    clocks = Clocks()
    told = clocks.tells.of(160.0)

    clocks.steady, clocks.wall = clocks.steady + 30, clocks.wall + 30.2

    assert clocks.tells.of(160.0) == told
