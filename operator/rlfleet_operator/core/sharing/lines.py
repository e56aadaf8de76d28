"""Lines by zone and node, along which workers forward a version while they receive it.

Workers stand in one order. The first of a line reads the store; every other worker receives
from those before it, the nearest first. So a sidecar passes over a worker that is dead, slow or
lying without the operator, and one of the first takes the place of a lost reader.

It must stay true that a worker receives only from workers before it or from holders: no cycle,
and always an end at the store.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlfleet_contract.worker.supply import Supply

MANY = 96
"""From so many workers on there are several lines: one would take seconds to fill."""
LINES = 3
"""So many lines, and so many reads of the store, of a large fleet. The fourth of at most four
is left for what workers read themselves."""
SUCCESSION = 4
"""The first workers of a line: each takes over once all before it are lost."""
NEAREST = 4
HOLDERS = 4


@dataclass(frozen=True, slots=True)
class Member:
    """One worker that can take part in the supply of one version."""

    name: str
    address: str
    zone: str = ""
    node: str = ""
    ordinal: int = 0
    holds: bool = False
    """Whether it has the whole version."""
    receives: bool = False
    """Whether it prepares the version already."""


def supplies(members: Sequence[Member]) -> dict[str, Supply]:
    """Return the supply of every worker that does not hold the version."""
    order = sorted(members, key=_place)
    holders = [m for m in order if m.holds]
    knowing = _knowing(order)
    found: dict[str, Supply] = {}
    for line in _lines([m for m in order if not m.holds]):
        for place, member in enumerate(line):
            near = _near(holders, member)
            first = [m.address for m in line[: min(place, SUCCESSION)]]
            found[member.name] = Supply(
                readers=(*(m.address for m in knowing), *first),
                senders=(*_before(line, place), *(m.address for m in near)),
                succeeds=place < SUCCESSION,
            )
    return found


def _place(member: Member) -> tuple[bool, str, str, int, str]:
    """Return a worker's place: one that came later never stands before one that receives."""
    is_new = not member.receives and not member.holds
    return is_new, member.zone, member.node, member.ordinal, member.name


def _lines(receivers: Sequence[Member]) -> Iterator[Sequence[Member]]:
    count = LINES if len(receivers) >= MANY else 1
    for part in range(count):
        yield receivers[part * len(receivers) // count : (part + 1) * len(receivers) // count]


def _before(line: Sequence[Member], place: int) -> Iterator[str]:
    """Yield the workers before one: the nearest, then at doubling distances, then the first."""
    far = NEAREST
    for distance in range(1, place + 1):
        if distance <= NEAREST or distance in {2 * far, place}:
            far = max(far, distance)
            yield line[place - distance].address


def _knowing(order: Sequence[Member]) -> list[Member]:
    """Return the holders that probably read the store: those that began a line."""
    firsts = [m for line in _lines(order) for m in line[:2] if m.holds]
    rest = [m for m in order if m.holds and m not in firsts]
    return [*firsts, *rest][:HOLDERS]


def _near(holders: Sequence[Member], member: Member) -> list[Member]:
    """Return a few holders, those of the same node and zone first, not the same for all."""
    turn = member.ordinal % len(holders) if holders else 0
    turned = [*holders[turn:], *holders[:turn]]
    ranked = sorted(turned, key=lambda h: (h.zone != member.zone, h.node != member.node))
    return ranked[:HOLDERS]
