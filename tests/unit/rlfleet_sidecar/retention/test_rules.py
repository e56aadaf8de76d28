"""Which versions are unneeded; and that every needed one can still be loaded without them."""

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlfleet_sidecar.retention.rules import next_above, unneeded

STEPS = [f"step-{number}" for number in range(1, 13)]


def weights(*numbers: int) -> list[str]:
    return [f"weight_v{number:06d}" for number in numbers]


def found(
    stored: Collection[str],
    needed: Collection[str],
    keep: int = 0,
    whole: Collection[str] = (),
) -> tuple[str, ...]:
    return unneeded(stored, needed, keep, lambda version: version in whole)


def test_versions_below_the_needed_one_are_unneeded_oldest_first() -> None:
    assert found(STEPS, {"step-10"}) == tuple(STEPS[:9])


def test_newer_versions_are_never_unneeded() -> None:
    assert found(STEPS, {"step-1"}) == ()


def test_the_newest_stay_besides_the_needed_ones() -> None:
    assert found(STEPS, {"step-3", "step-12"}, keep=3) == tuple(
        step for step in STEPS[:9] if step != "step-3"
    )


@pytest.mark.parametrize("needed", [set(), {"base"}, {"other-10"}, {"final"}])
def test_versions_of_another_kind_are_left_alone(needed: set[str]) -> None:
    assert found([*STEPS, "final", "base"], needed) == ()


def test_a_delta_needs_all_below_it_to_the_next_whole_version() -> None:
    stored = weights(*range(1, 11))

    assert found(stored, weights(9), whole=weights(2, 6)) == tuple(weights(1, 2, 3, 4, 5))
    assert found(stored, weights(5), whole=weights(2, 6)) == tuple(weights(1))
    assert found(stored, weights(6), whole=weights(2, 6)) == tuple(weights(1, 2, 3, 4, 5))


def test_deltas_of_the_base_model_are_all_needed() -> None:
    assert found(weights(*range(1, 11)), weights(10)) == ()


def test_a_chain_that_is_too_long_to_look_at_is_all_needed() -> None:
    stored = weights(*range(1, 400))

    assert found(stored, weights(399), whole=weights(100)) == ()
    assert found(stored, weights(399), whole=weights(200)) == tuple(weights(*range(1, 200)))


def test_skyrl_s_deltas_are_chains_too() -> None:
    assert found(["delta-00000001", "delta-00000002"], {"delta-00000002"}) == ()


def built_from(version: str, stored: Collection[str], whole: Collection[str]) -> list[str] | None:
    """Return what a worker with the base model alone reads to build a version, as it does."""
    number, read = int(version.removeprefix("weight_v")), []
    while number > 0:
        (name,) = weights(number)
        if name not in stored:
            return None
        read.append(name)
        if name in whole:
            break
        number -= 1
    return read


NUMBERS = st.sets(st.integers(1, 30), min_size=1, max_size=30)


@given(stored=NUMBERS, whole=NUMBERS, needed=NUMBERS, keep=st.integers(0, 5), data=st.data())
def test_what_is_needed_can_be_built_after_any_part_is_deleted(
    stored: set[int], whole: set[int], needed: set[int], keep: int, data: st.DataObject
) -> None:
    names, wholes, wanted = weights(*stored), weights(*whole), weights(*needed)
    gone = found(names, wanted, keep, wholes)
    deleted = data.draw(st.sets(st.sampled_from(gone))) if gone else set()
    left = set(names) - deleted

    newest = sorted(names)[-keep:] if keep else []
    newer = [name for name in names if name > max(wanted)]
    for version in {*wanted, *newest, *newer}:
        assert built_from(version, left, wholes) == built_from(version, set(names), wholes)


@given(
    stored=st.sets(st.integers(0, 40)), needed=st.sets(st.integers(0, 40)), keep=st.integers(0, 9)
)
def test_of_whole_versions_exactly_those_beyond_the_needed_and_the_newest_are_unneeded(
    stored: set[int], needed: set[int], keep: int
) -> None:
    kept = set(sorted(stored)[-keep:]) if keep else set()
    expected = {n for n in stored - needed - kept if needed and n < max(needed)}

    assert set(found([f"s{n}" for n in stored], {f"s{n}" for n in needed}, keep)) == {
        f"s{n}" for n in expected
    }


@pytest.mark.parametrize(
    ("version", "others", "expected"),
    [
        ("step-9", ["step-30", "step-10", "step-9", "a-10"], "step-10"),
        ("step-9", ["step-8", "a-10", "final"], None),
        ("final", ["step-8"], None),
    ],
)
def test_the_next_above_is_of_the_same_kind(
    version: str, others: list[str], expected: str | None
) -> None:
    assert next_above(version, others) == expected
