"""One simulated version for a whole fleet."""

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from bench.fanout.clock import Clock
from bench.fanout.links import Network, Node
from bench.fanout.peer import Costs, Peer, World
from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_contract.worker.supply import PIECE_BYTES
from rlfleet_operator.core.sharing.lines import Member, supplies
from rlfleet_sidecar.sharing.pieces import pieces_of

GBIT_S = 1e9 / 8
SLOWER = 10.0
"""A slow worker's link is so many times slower."""
_MOST = 40.0
"""Times of one link after which a simulation is given up."""


@dataclass(frozen=True, slots=True)
class Faults:
    """What is wrong with workers, by ordinal."""

    dies_at: Mapping[int, float] = field(default_factory=dict)
    """When a node is gone, in seconds; its connections stay open."""
    slow: frozenset[int] = frozenset()
    lying: frozenset[int] = frozenset()
    """They send wrong bytes."""

    @property
    def faulty(self) -> frozenset[int]:
        """Return all of them."""
        return self.slow | self.lying | self.dies_at.keys()


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fleet, a version, and what is wrong with the workers."""

    workers: int = 1000
    nbytes: int = 100 * 10**9
    piece_bytes: int = PIECE_BYTES
    link: float = 25 * GBIT_S
    """Bytes per second of each node, in each direction."""
    store: float = 100 * GBIT_S
    faults: Faults = field(default_factory=Faults)
    starts_within_s: float = 0.5
    """The operator's commands arrive within this time."""
    costs: Costs = field(default_factory=Costs)
    seed: int = 1

    @property
    def ideal_s(self) -> float:
        """The time that one link takes for the version."""
        return self.nbytes / self.link


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of it."""

    scenario: Scenario
    ended_s: Mapping[int, float]
    """When each living worker had everything, by ordinal."""
    copies: float
    """What left the store, in versions."""
    wrong: int
    """Pieces with wrong bytes that a worker took for right."""

    @property
    def ratio(self) -> float:
        """The time of the last worker without a fault, over that of one link."""
        return self._ratio(self.ended_s.keys() - self.scenario.faults.faulty)

    @property
    def lying_ratio(self) -> float:
        """The same of workers that send wrong bytes."""
        return self._ratio(self.scenario.faults.lying)

    @property
    def slow_ratio(self) -> float:
        """The same of slow workers, over the time of their own links."""
        return self._ratio(self.scenario.faults.slow) / SLOWER

    def _ratio(self, ordinals: Iterable[int]) -> float:
        ended = (self.ended_s[n] for n in ordinals if n in self.ended_s)
        return max(ended, default=0.0) / self.scenario.ideal_s


def drawn(
    scenario: Scenario,
    *,
    dead: float = 0.0,
    slow: float = 0.0,
    lying: float = 0.0,
    at_once: bool = False,
) -> Faults:
    """Draw these shares of a fleet; the dead die in the time of one link, or before anything."""
    random = Random(scenario.seed)  # noqa: S311 - no secret
    order = random.sample(range(scenario.workers), scenario.workers)
    counts = [round(share * scenario.workers) for share in (dead, slow, lying)]
    parts = [[order.pop() for _ in range(count)] for count in counts]
    within_s = 0.0 if at_once else scenario.ideal_s
    dies_at = {n: random.random() * within_s for n in parts[0]}
    return Faults(dies_at, frozenset(parts[1]), frozenset(parts[2]))


def run(scenario: Scenario) -> Outcome:
    """Let all workers prepare the version at once; returns when all that live have it."""
    clock, random = Clock(), Random(scenario.seed)  # noqa: S311 - no secret
    fleet = _fleet(scenario, clock, random)
    for peer in fleet:
        clock.after(random.random() * scenario.starts_within_s, peer.begin)
    for n, moment in scenario.faults.dies_at.items():
        clock.after(moment, fleet[n].die)
    left = [peer for n, peer in enumerate(fleet) if n not in scenario.faults.dies_at]

    def are_done() -> bool:
        while left and left[-1].ended_at is not None:
            left.pop()
        return not left

    with _no_search_for_cycles():
        clock.run(are_done, _MOST * scenario.ideal_s)
    return Outcome(
        scenario,
        ended_s={n: peer.ended_at for n, peer in enumerate(fleet) if peer.ended_at is not None},
        copies=sum(peer.from_store for peer in fleet) / scenario.nbytes,
        wrong=sum(len(peer.wrong) for peer in fleet),
    )


def _fleet(scenario: Scenario, clock: Clock, random: Random) -> list[Peer]:
    file = FileStamp(name="model.safetensors", size=scenario.nbytes, mtime_ns=0, inode=0)
    pieces = pieces_of([file], scenario.piece_bytes)
    peers: dict[str, Peer] = {}
    world = World(
        clock=clock,
        network=Network(clock),
        store=Node(scenario.store, 0.0),
        pieces=pieces,
        hashes=[n.to_bytes(32, "big") for n in range(len(pieces))],
        costs=scenario.costs,
        random=random,
        peers=peers,
    )
    members = [
        Member(f"w-{n}", f"10.0.{n // 256}.{n % 256}:8090", ordinal=n)
        for n in range(scenario.workers)
    ]
    plan = supplies(members)
    for n, member in enumerate(members):
        link = scenario.link / (SLOWER if n in scenario.faults.slow else 1.0)
        peers[member.address] = Peer(
            world,
            member.address,
            plan[member.name],
            Node(link, link),
            lies=n in scenario.faults.lying,
        )
    return [*peers.values()]


@contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """Leave Python's search for cycles out: it would look at millions of objects in use."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
