"""A simulated fleet shares a version at the rate of one link, by the decisions of the real code."""

from dataclasses import replace

import pytest

from bench.fanout.clock import Clock
from bench.fanout.fleet import GBIT_S, Faults, Scenario, drawn, run
from bench.fanout.links import Network, Node

MIB = 2**20
PLAIN = Scenario(workers=40, nbytes=2 * 10**9, piece_bytes=4 * MIB, link=0.5 * GBIT_S)
MOST, MOST_WITH_FAULTS = 1.3, 2.0
MOST_COPIES = 1.1


def test_a_line_of_workers_receives_at_the_rate_of_one_link() -> None:
    outcome = run(PLAIN)

    assert len(outcome.ended_s) == PLAIN.workers
    assert outcome.ratio <= MOST
    assert outcome.copies <= MOST_COPIES


@pytest.mark.parametrize("at_once", [False, True], ids=["they die on the way", "they never answer"])
@pytest.mark.parametrize("seed", [1, 2])
def test_dead_slow_and_lying_workers_hold_up_no_other_and_no_wrong_byte_is_kept(
    seed: int, *, at_once: bool
) -> None:
    plain = replace(PLAIN, seed=seed)
    faults = drawn(plain, dead=0.05, slow=0.05, lying=0.05, at_once=at_once)

    outcome = run(replace(plain, faults=faults))

    assert len(faults.faulty) == 6
    assert outcome.ended_s.keys() >= set(range(plain.workers)) - faults.faulty
    assert outcome.ratio <= MOST_WITH_FAULTS
    assert outcome.wrong == 0
    assert outcome.copies <= MOST_COPIES


@pytest.mark.parametrize(
    "faults",
    [
        Faults(lying=frozenset({7, 20})),
        Faults(slow=frozenset({7, 8, 20})),
        Faults(dies_at={7: 5.0, 8: 6.0, 20: 12.0}),
    ],
    ids=["lying", "slow", "dead"],
)
def test_one_kind_of_fault_costs_little(faults: Faults) -> None:
    outcome = run(replace(PLAIN, faults=faults))

    assert outcome.ratio <= 1.7
    assert outcome.wrong == 0


def test_a_dead_reader_costs_the_time_until_it_is_missed() -> None:
    outcome = run(replace(PLAIN, faults=Faults(dies_at={0: 0.0})))

    assert outcome.ratio * PLAIN.ideal_s <= MOST * PLAIN.ideal_s + 20.0


def test_a_slow_reader_costs_the_time_until_one_other_worker_reads_too() -> None:
    outcome = run(replace(PLAIN, faults=Faults(slow=frozenset({0}))))

    assert outcome.ratio <= MOST_WITH_FAULTS
    assert outcome.copies <= MOST_COPIES + 1


def test_a_simulation_is_the_same_each_time() -> None:
    scenario = replace(PLAIN, workers=12, faults=Faults({5: 3.0}, frozenset({7}), frozenset({9})))

    assert run(scenario) == run(scenario)


class Moved:
    """Flows of 100 bytes between nodes, and when each was over."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.network = Network(self.clock)
        self.ended_at: dict[str, float] = {}

    def send(self, name: str, source: Node, target: Node) -> None:
        event = self.network.send(source, target, 100.0)
        event.then(lambda _: self.ended_at.update({name: round(self.clock.now, 6)}))

    def run(self, count: int) -> dict[str, float]:
        self.clock.run(lambda: len(self.ended_at) == count, 1e6)
        return self.ended_at


def test_flows_share_a_link_equally() -> None:
    moved, source = Moved(), Node(up=10.0, down=0.0)
    moved.send("a", source, Node(0.0, 100.0))
    moved.clock.after(5.0, lambda _: moved.send("b", source, Node(0.0, 100.0)))

    assert moved.run(2) == {"a": 15.0, "b": 20.0}


def test_what_a_slow_receiver_cannot_take_is_left_to_others() -> None:
    moved, source = Moved(), Node(up=10.0, down=0.0)
    moved.send("slow", source, Node(0.0, 1.0))
    moved.send("fast", source, Node(0.0, 100.0))

    assert moved.run(2) == {"slow": 100.0, "fast": round(100 / 9, 6)}


def test_a_receiver_shares_its_link_among_senders() -> None:
    moved, target = Moved(), Node(0.0, down=10.0)
    moved.send("slow", Node(1.0, 0.0), target)
    moved.send("fast", Node(100.0, 0.0), target)
    moved.send("other", Node(100.0, 0.0), target)

    ended = moved.run(3)

    assert ended["slow"] == pytest.approx(100.0)
    assert ended["fast"] == pytest.approx(100 / 4.5, rel=0.3)


def test_nothing_flows_from_or_to_a_node_that_was_cut() -> None:
    moved, source, target = Moved(), Node(10.0, 10.0), Node(10.0, 10.0)
    moved.send("lost", source, target)
    moved.send("kept", source, Node(10.0, 10.0))

    moved.clock.after(5.0, lambda _: moved.network.cut(target))

    assert moved.run(1) == {"kept": 12.5}
