"""The term for which a process leads."""

import pytest

from rlfleet_operator.errors import NotLeading
from rlfleet_operator.kube.lease import LeaseTerm


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_within_its_time_it_allows_to_send() -> None:
    clock = Clock()
    term = LeaseTerm(106.0, clock)

    clock.now = 105.9
    term.demand()
    term.extend(108.0)
    clock.now = 107.9
    term.demand()


def test_a_process_that_wakes_after_its_term_may_not_send() -> None:
    clock = Clock()
    term = LeaseTerm(106.0, clock)

    clock.now = 106.0
    with pytest.raises(NotLeading):
        term.demand()
    assert term.over.is_set()


def test_a_term_that_ran_out_is_not_revived_by_a_late_renewal() -> None:
    clock = Clock()
    term = LeaseTerm(106.0, clock)

    clock.now = 107.0
    term.extend(112.0)

    with pytest.raises(NotLeading):
        term.demand()


def test_a_term_that_was_ended_stays_ended() -> None:
    term = LeaseTerm()
    term.demand()

    term.end()

    with pytest.raises(NotLeading):
        term.demand()
