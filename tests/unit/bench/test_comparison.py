"""Two engines that are asked by turns are compared pair by pair."""

import pytest

from bench.comparison import Block, Cell, cells, latency_ratio, quantile, throughput_ratio

ROUTE = "chat"


def blocks(turns: str, *per_s: float, clients: int = 1) -> list[Block]:
    return [
        Block(ROUTE, clients, turn == "B", 1.0, [1000 / rate] * int(rate))
        for turn, rate in zip(turns, per_s, strict=True)
    ]


def cell(turns: str, *per_s: float) -> Cell:
    (found,) = cells(blocks(turns, *per_s))
    return found


def test_a_ratio_is_that_of_neighbours_whichever_went_first() -> None:
    assert cell("ABBA", 100, 50, 10, 20).throughput_ratios() == [0.5, 0.5]


def test_a_machine_that_slows_down_over_the_run_changes_no_ratio() -> None:
    found = cell("ABBABAAB", 400, 200, 100, 200, 50, 100, 40, 20)

    assert throughput_ratio([found]) == pytest.approx(0.5)
    assert latency_ratio([found], 0.5) == pytest.approx(2.0)


def test_an_engines_own_neighbours_show_the_noise() -> None:
    assert cell("ABBA", 100, 100, 50, 100).own_ratios() == [0.5]


def test_every_cell_counts_the_same_however_many_requests_it_had() -> None:
    found = [*blocks("AB", 1000, 2000), *blocks("AB", 20, 10, clients=64)]

    assert throughput_ratio(cells(found)) == pytest.approx(1.0)


def test_two_blocks_of_one_engine_are_no_pair() -> None:
    with pytest.raises(ValueError, match="not one block of each engine"):
        cell("AABB", 1, 1, 1, 1).throughput_ratios()


@pytest.mark.parametrize(
    ("part", "value"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1)], ids=str
)
def test_a_quantile_is_one_of_the_values(part: float, value: int) -> None:
    assert quantile(range(100, 0, -1), part) == value
