"""What is kept near the engine, and what goes first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlfleet_sidecar.cache.eviction import StagedCopy, evictions, footprint

OLD, BEFORE, NOW, OTHER = (
    StagedCopy("old", 10, 1.0),
    StagedCopy("before", 10, 2.0),
    StagedCopy("now", 10, 3.0),
    StagedCopy("other", 10),
)
IN_USE = frozenset({"now"})


@pytest.mark.parametrize(
    ("copies", "nbytes", "free", "gone"),
    [
        ([], 10, 10, ()),
        ([NOW], 10, 10, ()),
        ([BEFORE, NOW], 10, 10, ()),
        ([OLD, BEFORE, NOW], 10, 10, ("old",)),
        ([OTHER, BEFORE, NOW], 10, 100, ("other",)),
        ([BEFORE, OLD, NOW], 10, 0, ("old",)),
        ([BEFORE, NOW], 10, 0, ("before",)),
        ([OLD, BEFORE, OTHER, NOW], 30, 0, ("old", "other", "before")),
        ([NOW], 11, 10, None),
        ([OLD, BEFORE, NOW], 31, 10, None),
    ],
)
def test_the_rest_goes_then_the_previous_and_never_the_present(
    copies: list[StagedCopy[str]], nbytes: int, free: int, gone: tuple[str, ...] | None
) -> None:
    assert evictions(copies, IN_USE, nbytes, free) == gone


@given(
    st.lists(
        st.builds(
            StagedCopy,
            st.sampled_from("abcdefgh"),
            st.integers(1, 50),
            st.none() | st.floats(0, 9),
        ),
        unique_by=lambda copy: copy.name,
    ),
    st.frozensets(st.sampled_from("abcdefgh")),
    st.integers(1, 200),
    st.integers(0, 100),
)
def test_what_goes_suffices_and_is_not_in_use(
    copies: list[StagedCopy[str]], in_use: frozenset[str], nbytes: int, free: int
) -> None:
    gone = evictions(copies, in_use, nbytes, free)
    can_go = sum(copy.nbytes for copy in copies if copy.name not in in_use)

    if gone is None:
        assert nbytes > free + can_go
    else:
        assert not in_use & set(gone)
        assert nbytes <= free + sum(copy.nbytes for copy in copies if copy.name in gone)
        left = [c for c in copies if c.name not in in_use and c.name not in gone]
        assert len(left) <= 1, "of what is not in use only the previous version is kept"


def test_files_take_whole_pages() -> None:
    assert footprint([1]) - footprint([]) == footprint([4096]) - footprint([]) == 4096
    assert footprint([4097, 0]) - footprint([]) == 8192
