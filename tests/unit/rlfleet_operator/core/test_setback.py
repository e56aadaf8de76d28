"""When a fleet whose driver failed gets the next one."""

from rlfleet_operator.core.setback import FIRST_S, LAST_S, WELL_S, Setback, after


def pauses(count: int, ran_s: float) -> list[float]:
    """Return the pauses of drivers that each run for so long and fail."""
    found: list[float] = []
    back: Setback | None = None
    now = 1000.0
    for _ in range(count):
        back = after(back, now)
        assert back.over_at == now + back.pause_s
        found.append(back.pause_s)
        now = back.over_at + ran_s
    return found


def test_drivers_that_fail_at_once_come_ever_more_seldom_and_never_stop_coming() -> None:
    assert pauses(9, ran_s=0.1) == [5, 10, 20, 40, 80, 160, 300, 300, 300]


def test_a_driver_that_ran_well_for_a_while_is_replaced_soon() -> None:
    assert pauses(3, ran_s=WELL_S) == [FIRST_S] * 3
    assert pauses(2, ran_s=WELL_S - 1) == [FIRST_S, 2 * FIRST_S]
    assert LAST_S > FIRST_S
