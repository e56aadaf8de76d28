"""The bytes of a file that are there are known, whatever the order in which they came."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlfleet_sidecar.staging.coverage import Coverage

_SIZE = 40
_RANGES = st.lists(
    st.tuples(st.integers(0, _SIZE - 1), st.integers(1, 12)).map(lambda r: (r[0], r[0] + r[1])),
    max_size=12,
)


@given(ranges=_RANGES)
def test_it_knows_what_a_set_of_bytes_knows(ranges: list[tuple[int, int]]) -> None:
    coverage, held = Coverage(), set[int]()
    for begin, end in ranges:
        added = set(range(begin, end))
        if held & added:
            with pytest.raises(ValueError, match="reported twice"):
                coverage.add(begin, end)
        else:
            coverage.add(begin, end)
            held |= added

        for place in range(_SIZE + 12):
            until = place
            while until in held:
                until += 1
            assert coverage.until(place) == until
