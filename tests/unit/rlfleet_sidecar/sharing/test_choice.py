"""Which worker before it a worker receives from."""

import pytest

from rlfleet_sidecar.sharing.choice import (
    Offer,
    choose,
    is_late,
    is_reader_slow,
    is_slow,
    is_to_blame,
    slack,
)

TOTAL, PACE = 6000, 180


def in_step(held: int) -> Offer:
    return Offer(held, within_reach=held + 1, pace=PACE)


def waiting(held: int) -> Offer:
    """A worker behind a slow one: it has all that it could get."""
    return Offer(held, within_reach=held + 1, pace=PACE // 10)


def slow(held: int) -> Offer:
    return Offer(held, within_reach=held + 500, pace=PACE // 10)


def catching_up(held: int) -> Offer:
    return Offer(held, within_reach=held + 500, pace=PACE)


@pytest.mark.parametrize(
    ("offers", "expected"),
    [
        ([in_step(101), in_step(102)], 0),
        ([None, in_step(102), in_step(103)], 1),
        ([slow(101), in_step(600), in_step(601)], 1),
        ([slow(101), slow(102), in_step(601)], 2),
        ([waiting(100), slow(101), in_step(600)], 0),
        ([catching_up(100), in_step(600)], 0),
        ([slow(100), slow(102), slow(101)], 1),
        ([Offer(TOTAL, TOTAL, 0), in_step(101)], 0),
        ([None, None], None),
        ([], None),
    ],
    ids=[
        "the nearest of a line in step",
        "one that does not answer is passed over",
        "a slow one is passed over",
        "two slow ones are passed over",
        "one that waits for a slow one is kept",
        "one that was late and now receives is kept",
        "of slow ones the one that has the most",
        "one that has all",
        "no worker answers",
        "no worker exists",
    ],
)
def test_the_nearest_that_is_not_slow(offers: list[Offer | None], expected: int | None) -> None:
    assert choose(offers, TOTAL, PACE) == expected


def test_a_worker_that_shares_its_predecessor_with_another_is_kept() -> None:
    halved = Offer(100, within_reach=600, pace=PACE // 2)

    assert choose([halved, in_step(600)], TOTAL, PACE) == 0


def test_a_worker_looks_around_when_it_is_behind_and_receives_less_than_a_reader_reads() -> None:
    assert is_late(100, 300, TOTAL, received=18, hashed=PACE)
    assert is_late(100, 300, TOTAL, received=0, hashed=0)
    assert not is_late(100, 300, TOTAL, received=150, hashed=PACE)
    assert not is_late(290, 300, TOTAL, received=0, hashed=PACE)


def test_a_worker_that_is_late_by_what_a_reader_hashes_in_a_moment_is_not_late() -> None:
    assert not is_late(100, 100 + PACE, TOTAL, received=18, hashed=PACE)


@pytest.mark.parametrize(
    ("sender", "expected"),
    [
        (in_step(105), False),
        (waiting(105), False),
        (slow(105), True),
        (in_step(600), True),
    ],
    ids=["it keeps step", "it waits too", "it is slow", "it keeps back what it has"],
)
def test_a_late_worker_looks_around_only_if_its_sender_is_to_blame(
    sender: Offer, *, expected: bool
) -> None:
    assert is_to_blame(sender, 100, TOTAL, PACE) is expected


@pytest.mark.parametrize(
    ("took_s", "expected"),
    [(2 / 90, False), (4 / 90, False), (6 / 90, True)],
    ids=["two pieces at once", "and two to another receiver", "slower"],
)
def test_a_piece_that_takes_far_longer_than_readers_need_comes_from_a_slow_worker(
    took_s: float, *, expected: bool
) -> None:
    assert is_slow(took_s, hashed_per_s=90.0) is expected
    assert not is_slow(took_s, hashed_per_s=0.0)


def test_a_small_version_allows_for_less_delay() -> None:
    assert [slack(total, 0) for total in (1, 64, 100_000)] == [2, 4, 16]


@pytest.mark.parametrize(
    ("hashed", "read", "left", "expected"),
    [(1, 10, 1000, True), (1, 1.5, 1000, False), (10, 100, 20, False), (0, 0.1, 1, True)],
    ids=["far slower", "about as fast", "nearly done", "no hash at all"],
)
def test_a_reader_is_replaced_only_if_that_saves_much(
    *, hashed: float, read: float, left: int, expected: bool
) -> None:
    assert is_reader_slow(hashed, read, left, 15.0) is expected
