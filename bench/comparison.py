"""Compares two engines that got requests in turns. Pure.

It compares neighbours in time, so that other load of the machine affects both. Neighbours of the
same engine show how much equal measurements differ.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import geometric_mean, median
from typing import Any

from bench.findings import rounded, summary


@dataclass(frozen=True, slots=True)
class Block:
    """The same requests, sent to one engine by closed-loop clients."""

    route: str
    clients: int
    is_extended: bool
    seconds: float
    latencies_ms: Sequence[float]

    @property
    def per_s(self) -> float:
        """Requests a second."""
        return len(self.latencies_ms) / self.seconds


@dataclass(frozen=True, slots=True)
class Cell:
    """One route with one number of clients: its blocks in their order, two by two a pair."""

    route: str
    clients: int
    blocks: Sequence[Block]

    def throughput_ratios(self) -> list[float]:
        """Return requests a second with the extension over those without it, of each pair."""
        return [extended.per_s / plain.per_s for plain, extended in self._pairs()]

    def latency_ratios(self, part: float) -> list[float]:
        """Return the same of a quantile of the latencies."""
        return [
            quantile(extended.latencies_ms, part) / quantile(plain.latencies_ms, part)
            for plain, extended in self._pairs()
        ]

    def own_ratios(self) -> list[float]:
        """Return the later block's requests a second over the earlier's, of the same engine."""
        return [
            after.per_s / before.per_s
            for before, after in pairwise(self.blocks)
            if before.is_extended is after.is_extended
        ]

    def latencies(self, *, is_extended: bool) -> list[float]:
        """Return all latencies of one engine."""
        own = (block for block in self.blocks if block.is_extended is is_extended)
        return [latency for block in own for latency in block.latencies_ms]

    def per_s(self, *, is_extended: bool) -> float:
        """Return the median of one engine's requests a second."""
        return median(b.per_s for b in self.blocks if b.is_extended is is_extended)

    def row(self) -> dict[str, Any]:
        """Return a table's row; ratios are those with the extension over those without it."""
        throughput = summary(self.throughput_ratios())
        plain, extended = (self.latencies(is_extended=one) for one in (False, True))
        return {
            "route": self.route,
            "clients": self.clients,
            "requests/s without": rounded(self.per_s(is_extended=False)),
            "with": rounded(self.per_s(is_extended=True)),
            "ratio": f"{throughput['median']:.3f}",
            "of the pairs": f"{throughput['min']:.3f} to {throughput['max']:.3f}",
            "p50 without, ms": rounded(quantile(plain, 0.5)),
            "p50 with": rounded(quantile(extended, 0.5)),
            "p50 ratio": f"{median(self.latency_ratios(0.5)):.3f}",
            "p99 without, ms": rounded(quantile(plain, 0.99)),
            "p99 with": rounded(quantile(extended, 0.99)),
            "requests": len(plain) + len(extended),
        }

    def _pairs(self) -> Iterable[tuple[Block, Block]]:
        """Return the plain and the extended block of each pair."""
        for pair in zip(self.blocks[::2], self.blocks[1::2], strict=True):
            plain, extended = sorted(pair, key=lambda block: block.is_extended)
            if plain.is_extended or not extended.is_extended:
                raise ValueError(f"not one block of each engine: {pair}")
            yield plain, extended


def cells(blocks: Iterable[Block]) -> list[Cell]:
    """Sort blocks, as they were measured, into cells."""
    by_cell = groupby(blocks, key=lambda block: (block.route, block.clients))
    return [Cell(route, clients, list(found)) for (route, clients), found in by_cell]


def throughput_ratio(found: Sequence[Cell]) -> float:
    """Return the geometric mean over all cells of their pairs' median."""
    return geometric_mean(median(cell.throughput_ratios()) for cell in found)


def latency_ratio(found: Sequence[Cell], part: float) -> float:
    """Return the same of a quantile of the latencies."""
    return geometric_mean(median(cell.latency_ratios(part)) for cell in found)


def quantile(values: Sequence[float], part: float) -> float:
    """Return the smallest value that this part of the values does not exceed."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]
