"""Where the next piece comes from, by a clock of the test's own."""

from pathlib import Path

import pytest

from rlfleet_contract.worker.supply import Supply
from rlfleet_sidecar.sharing import route
from rlfleet_sidecar.sharing.offering import Offering
from rlfleet_sidecar.sharing.piece_client import Fetched
from rlfleet_sidecar.sharing.pieces import Piece
from rlfleet_sidecar.sharing.route import PieceRoute, Sender, Way

NEAR, FAR = "10.0.0.2:8090", "10.0.0.1:8090"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def made(clock: Clock, *senders: str, succeeds: bool = False, reads: bool = False) -> PieceRoute:
    offering = Offering("step-1", "e", [Piece("a", 0, 1), Piece("a", 1, 2)], Path(), reads=reads)
    offering.note(0, bytes(32))
    return PieceRoute(
        Supply(readers=senders[-1:], senders=senders, succeeds=succeeds), offering, clock
    )


def at(found: Way | Sender) -> str:
    assert isinstance(found, Sender)
    return found.address


def test_a_piece_without_a_hash_is_waited_for_and_read_only_by_a_reader() -> None:
    follower = made(Clock(), NEAR, FAR)

    assert follower.way(1) is Way.WAIT
    assert at(follower.way(0)) == NEAR

    follower.read_store(alone=False)
    assert follower.way(1) is Way.STORE
    assert at(follower.way(0)) == NEAR


def test_a_worker_that_breaks_rests_longer_each_time_and_the_next_is_asked() -> None:
    clock = Clock()
    found = made(clock, NEAR, FAR)
    near, far = found.senders

    found.came(near, Fetched.BROKEN)
    found.came(near, Fetched.BROKEN)
    assert at(found.way(0)) == FAR
    assert near.again_at == clock.now + 1.0, "several threads met one failure"

    clock.now += 1.0
    found.came(near, Fetched.BROKEN)
    assert near.again_at == clock.now + 2.0
    found.came(far, Fetched.BROKEN)
    assert found.way(0) is Way.WAIT


@pytest.mark.parametrize(("succeeds", "patience_s"), [(True, 15.0), (False, 30.0)])
def test_the_store_is_read_when_no_worker_has_been_left_for_long(
    *, succeeds: bool, patience_s: float
) -> None:
    clock = Clock()
    found = made(clock, NEAR, succeeds=succeeds)

    found.came(found.senders[0], Fetched.ABSENT)
    assert found.way(0) is Way.WAIT
    clock.now += patience_s + 1
    found.came(found.senders[0], Fetched.BROKEN)
    assert found.way(0) is Way.STORE


def test_a_worker_that_lied_is_never_asked_again_and_the_store_at_once() -> None:
    clock = Clock()
    found = made(clock, NEAR)

    assert found.is_right(found.senders[0], 0, bytes(32))
    assert not found.is_right(found.senders[0], 0, bytes(31) + b"1")
    clock.now += 1e6

    assert found.way(0) is Way.STORE
    assert found.available() == []


def test_a_worker_that_does_not_share_yet_is_asked_again_before_those_further_up() -> None:
    clock = Clock()
    found = made(clock, NEAR, FAR)

    found.came(found.senders[0], Fetched.ABSENT)
    assert at(found.way(0)) == FAR

    clock.now += 1.0
    assert at(found.way(0)) == NEAR


@pytest.mark.parametrize("result", [Fetched.WHOLE, Fetched.NOT_YET])
def test_a_worker_that_begins_to_share_is_not_left_for_one_further_up(result: Fetched) -> None:
    clock = Clock()
    found = made(clock, NEAR, FAR)

    found.came(found.senders[0], Fetched.ABSENT)
    assert at(found.way(0)) == FAR
    clock.now += 0.1
    found.came(found.senders[0], result)  # Another thread had asked it later.
    assert at(found.way(0)) == NEAR

    clock.now += 1.0
    assert at(found.way(0)) == NEAR


def slow_pieces(found: PieceRoute, sender: Sender, count: int, took_s: float = 1.0) -> None:
    found.hashed_per_s = 100.0
    for _ in range(count):
        found.came(sender, Fetched.WHOLE, took_s)


def test_a_slow_worker_is_passed_over_after_some_pieces_in_sequence() -> None:
    found = made(Clock(), NEAR, FAR)
    near = found.senders[0]

    slow_pieces(found, near, route.SLOW_PIECES - 1)
    slow_pieces(found, near, 1, took_s=0.01)
    slow_pieces(found, near, route.SLOW_PIECES - 1)
    assert at(found.way(0)) == NEAR

    slow_pieces(found, near, 1)
    assert at(found.way(0)) == FAR
    assert found.available() == [found.senders[1]]


def test_if_every_worker_is_slow_it_is_the_own_link_and_the_nearest_is_kept() -> None:
    senders = [f"10.0.0.{n}:8090" for n in range(9, 1, -1)]
    found = made(Clock(), *senders)

    for sender in found.senders[: route.PASSED_OVER + 1]:
        assert at(found.way(0)) == sender.address
        slow_pieces(found, sender, route.SLOW_PIECES)
    slow_pieces(found, found.senders[0], 5 * route.SLOW_PIECES)

    assert at(found.way(0)) == senders[0]
    assert len(found.available()) == len(senders)


def test_the_only_worker_is_kept_however_slow_it_is() -> None:
    found = made(Clock(), NEAR)

    slow_pieces(found, found.senders[0], 5 * route.SLOW_PIECES)

    assert at(found.way(0)) == NEAR


def test_of_two_that_are_gone_none_is_asked_again_before_the_next_one() -> None:
    clock = Clock()
    found = made(clock, NEAR, "10.0.0.3:8090", FAR)

    for sender in found.senders[:2]:
        assert at(found.way(0)) == sender.address
        clock.now += 3.0
        found.came(sender, Fetched.BROKEN)

    assert at(found.way(0)) == FAR
