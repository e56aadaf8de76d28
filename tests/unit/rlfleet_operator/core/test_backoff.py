"""Pauses between tries."""

import pytest

from rlfleet_operator.core.backoff import pause_s


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 1.0), (2, 2.0), (6, 32.0), (7, 60.0), (100_000, 60.0)]
)
def test_each_pause_is_twice_the_one_before_up_to_the_longest(
    failures: int, seconds: float
) -> None:
    """Also of what fails for days: no power of two outgrows a float."""
    assert pause_s(failures, 1.0, 60.0) == seconds
