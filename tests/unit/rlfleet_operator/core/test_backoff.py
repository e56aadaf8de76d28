"""Pauses between tries."""

from itertools import islice

import pytest

from rlfleet_operator.core.backoff import Backoff

BACKOFF = Backoff(1.0, 60.0, well_s=300.0)


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 1.0), (2, 2.0), (6, 32.0), (7, 60.0), (100_000, 60.0)]
)
def test_each_pause_is_twice_the_one_before_up_to_the_longest(
    failures: int, seconds: float
) -> None:
    """Also of what fails for days: no power of two outgrows a float."""
    assert BACKOFF.pause_s(failures) == seconds


def test_the_pauses_have_no_end_and_each_reader_begins_with_the_first() -> None:
    assert list(islice(BACKOFF, 8)) == [1, 2, 4, 8, 16, 32, 60, 60]
    assert next(iter(BACKOFF)) == 1


def test_what_failed_after_it_ran_well_failed_once() -> None:
    assert BACKOFF.failed(0, ran_s=0.1) == 1
    assert BACKOFF.failed(3, ran_s=299.0) == 4
    assert BACKOFF.failed(3, ran_s=300.0) == 1
    assert Backoff(1.0, 60.0).failed(3, ran_s=1e9) == 4
