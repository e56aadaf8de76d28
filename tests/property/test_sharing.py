"""Supplies along which workers forward a version, for any fleet and any moment."""

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from rlfleet_contract.worker.supply import Supply
from rlfleet_operator.core.sharing.lines import (
    HOLDERS,
    LINES,
    MANY,
    NEAREST,
    SUCCESSION,
    Member,
    supplies,
)

LONGEST = NEAREST + 10 + 1 + HOLDERS
"""Of a list of workers: the nearest, doubling distances, the first, holders."""


@st.composite
def fleets(draw: st.DrawFn) -> list[Member]:
    """Draw fleets of few and of many workers, at the start of a version and in its midst."""
    size = draw(st.one_of(st.integers(1, 12), st.integers(MANY, 120)))
    zones, nodes = draw(st.integers(1, 3)), draw(st.integers(1, 40))
    ordinals = st.sets(st.integers(0, size - 1), max_size=size)
    holds, receives = draw(ordinals), draw(ordinals)
    if draw(st.booleans()):
        holds = set()
    return [
        Member(
            f"w-{n}",
            f"10.0.{n // 200}.{n % 200}:8090",
            zone=f"z-{n % zones}",
            node=f"n-{n % nodes}",
            ordinal=n,
            holds=n in holds,
            receives=n in receives and n not in holds,
        )
        for n in range(size)
    ]


def by_address(members: list[Member]) -> dict[str, str]:
    return {m.address: m.name for m in members}


@given(fleets())
def test_every_worker_has_a_way_to_the_store_and_none_leads_in_a_circle(
    members: list[Member],
) -> None:
    found, names = supplies(members), by_address(members)

    assert found.keys() == {m.name for m in members if not m.holds}
    settled = {m.name for m in members if m.holds}
    left = {n: {names[a] for a in (*s.senders, *s.readers)} for n, s in found.items()}
    while ready := [name for name, needed in left.items() if needed <= settled]:
        settled |= set(ready)
        for name in ready:
            del left[name]
    assert left == {}


@given(fleets())
def test_a_version_leaves_the_store_at_most_thrice_and_once_for_a_small_fleet(
    members: list[Member],
) -> None:
    found = supplies(members)
    readers = [supply for supply in found.values() if not supply.readers]

    if any(m.holds for m in members):
        assert readers == []
    else:
        assert len(readers) == (LINES if len(found) >= MANY else 1)
    assert all(not supply.senders and supply.succeeds for supply in readers)


@given(fleets())
def test_few_workers_may_replace_a_reader_and_each_waits_for_all_before_it(
    members: list[Member],
) -> None:
    found, names = supplies(members), by_address(members)
    successors = [name for name, supply in found.items() if supply.succeeds]

    assert len(successors) <= SUCCESSION * (LINES if len(found) >= MANY else 1)
    for name, supply in found.items():
        receiving = [names[a] for a in supply.readers if names[a] in found]
        assert all(found[reader].succeeds for reader in receiving)
        assert name not in receiving
        if not supply.succeeds:
            assert len(receiving) == SUCCESSION


@given(fleets())
def test_a_worker_is_asked_first_by_one_other_and_lists_are_short(members: list[Member]) -> None:
    found, names = supplies(members), by_address(members)
    receivers = {m.name for m in members if not m.holds}
    firsts = Counter(names[s.senders[0]] for s in found.values() if s.senders)

    assert all(count == 1 for name, count in firsts.items() if name in receivers)
    for supply in found.values():
        assert len(supply.senders) <= LONGEST
        assert len(set(supply.senders)) == len(supply.senders)
        assert Supply.model_validate(supply.model_dump()) == supply


@given(fleets(), st.randoms(use_true_random=False))
def test_the_order_in_which_workers_are_listed_changes_nothing(
    members: list[Member], random: Random
) -> None:
    mixed = [*members]
    random.shuffle(mixed)

    assert supplies(mixed) == supplies(members)


@given(fleets(), st.integers(0, 119))
def test_a_worker_that_comes_later_stands_behind_those_that_receive(
    members: list[Member], place: int
) -> None:
    late = members[place % len(members)]
    before = [m for m in members if m.receives or m.holds]
    if late in before or not before:
        return
    found = supplies([*before, late])[late.name]

    assert found.readers
    assert found.senders


def test_neighbours_in_a_chain_share_a_node_then_a_zone() -> None:
    fleet = [
        Member(f"w-{n}", f"10.0.0.{n}:8090", zone=f"z-{n % 2}", node=f"n-{n % 4}", ordinal=n)
        for n in range(16)
    ]
    members, names = {m.name: m for m in fleet}, by_address(fleet)
    pairs = [
        (members[name], members[names[supply.senders[0]]])
        for name, supply in supplies(fleet).items()
        if supply.senders
    ]

    assert sum(a.zone != b.zone for a, b in pairs) == 1
    assert sum(a.node != b.node for a, b in pairs) == 3


def test_a_late_joiner_asks_a_holder_of_its_own_node_first() -> None:
    fleet = [
        Member("w-0", "10.0.0.1:8090", zone="a", node="n-0", holds=True),
        Member("w-1", "10.0.0.2:8090", zone="a", node="n-1", ordinal=1, holds=True),
        Member("w-2", "10.0.0.3:8090", zone="a", node="n-1", ordinal=2),
    ]

    found = supplies(fleet)["w-2"]

    assert found.readers == ("10.0.0.1:8090", "10.0.0.2:8090")
    assert found.senders == ("10.0.0.2:8090", "10.0.0.1:8090")
    assert found.succeeds
