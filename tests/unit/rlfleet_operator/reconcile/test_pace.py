"""The rest after a pass: in proportion to the CPU's time, and to nothing else."""

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

    assert rest_s <= pace.rest_s < 1.5 * rest_s


def test_a_pass_in_which_the_process_was_stopped_costs_no_rest() -> None:
    pace = Pace()
    pace.workers = 10_000
    with pace.counting():
        time.sleep(0.3)  # Time passes without the CPU, as for a stopped process.

    assert pace.rest_s < 0.05


def test_each_pass_counts_alone() -> None:
    pace = Pace()
    with pace.counting():
        busy(0.05)
    pace.begin()

    assert pace.rest_s == 0.0
