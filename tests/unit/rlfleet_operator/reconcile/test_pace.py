"""The rest after a pass: in proportion to its time, and bounded by the CPU's."""

import time

import pytest

from rlfleet_operator.reconcile.pace import Pace


def busy(cpu_s: float) -> None:
    """Keep the CPU busy for so long."""
    end = time.thread_time() + cpu_s
    while time.thread_time() < end:
        pass


@pytest.mark.parametrize(("workers", "rest_s"), [(1, 0.15), (399, 0.15), (400, 0.45)])
def test_a_driver_rests_in_proportion_to_its_pass(workers: int, rest_s: float) -> None:
    pace = Pace()
    pace.workers = workers
    with pace.counting():
        busy(0.04)
    with pace.counting():
        busy(0.01)

    # On a machine with other work it may be longer, up to a bound.
    assert rest_s <= pace.rest_s < 3.1 * rest_s


def test_a_driver_that_shares_the_cpu_rests_longer() -> None:
    pace = Pace()
    pace.workers = 400
    with pace.counting():
        busy(0.05)
        time.sleep(0.05)  # As while another process has the CPU.

    assert pace.rest_s >= 0.9


def test_a_pass_in_which_the_process_was_stopped_costs_little_rest() -> None:
    pace = Pace()
    pace.workers = 10_000
    with pace.counting():
        busy(0.01)
        time.sleep(0.6)  # Time passes without the CPU, as for a stopped process.

    assert pace.rest_s < 0.5, "by the clock alone it would be 5.5 s"


def test_each_pass_counts_alone() -> None:
    pace = Pace()
    with pace.counting():
        busy(0.05)
    pace.begin()

    assert pace.rest_s == 0.0
