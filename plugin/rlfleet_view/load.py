"""Tokens and waiting requests of a fleet, from its engines' metrics. Pure.

Engines have counters since their start: a rate needs two looks. What one look lacks (an engine
that is silent, restarted, or not asked) is left out of the rate and counted, never guessed.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rlfleet_view import samples
from rlfleet_view.fleet import RawObject

PERIOD_S = 2.0
"""The least time between two looks at a fleet."""
MOST_WORKERS = 32
"""How many engines one look asks: the first by their ordinals."""
_KEPT = 450
"""How many looks are kept: 15 minutes."""
_GENERATED = "vllm:generation_tokens_total"
_RUNNING = "vllm:num_requests_running"
_WAITING = "vllm:num_requests_waiting"


class EngineLoad(NamedTuple):
    """What an engine's metrics say at one time."""

    tokens: float
    """Generated since the engine began."""
    running: float
    waiting: float


class LoadPoint(NamedTuple):
    """One look at all engines."""

    at: float
    """Seconds since the epoch."""
    tokens_per_s: float | None
    """Since the look before; None without one."""
    running: float
    waiting: float


def parsed(text: str) -> EngineLoad | None:
    """Return the load in vLLM's metrics; None if a series is missing."""
    found: dict[str, float] = {}
    for sample in samples.parsed(text):
        found[sample.name] = found.get(sample.name, 0.0) + sample.value
    try:
        return EngineLoad(found[_GENERATED], found[_RUNNING], found[_WAITING])
    except KeyError:
        return None


@dataclass
class LoadHistory:
    """The looks at one fleet, the oldest first."""

    points: deque[LoadPoint] = field(default_factory=lambda: deque(maxlen=_KEPT))
    note: str = ""
    """What the last look lacked."""
    _before: dict[str, EngineLoad] = field(default_factory=dict)

    def is_due(self, now: float) -> bool:
        """Return whether the last look is old enough for another."""
        return not self.points or not 0 <= now - self.points[-1].at < PERIOD_S

    def add(self, now: float, found: Mapping[str, EngineLoad | str], workers: int) -> None:
        """Add a look: each engine's load, or why there is none."""
        loads = {name: one for name, one in found.items() if isinstance(one, EngineLoad)}
        errors = {name: one for name, one in found.items() if isinstance(one, str)}
        self.note = _note(errors, len(found), workers)
        if not loads:
            self._before = {}
            return
        self.points.append(
            LoadPoint(
                now,
                self._rate(now, loads),
                sum(one.running for one in loads.values()),
                sum(one.waiting for one in loads.values()),
            )
        )
        self._before = loads

    def _rate(self, now: float, loads: Mapping[str, EngineLoad]) -> float | None:
        made = [
            loads[name].tokens - before.tokens
            for name, before in self._before.items()
            if name in loads and loads[name].tokens >= before.tokens
        ]
        passed = now - self.points[-1].at if self.points else 0.0
        return sum(made) / passed if made and passed > 0 else None

    def as_json(self) -> RawObject:
        """Return it as the page shows it."""
        return {"points": [list(point) for point in self.points], "note": self.note}


def _note(errors: Mapping[str, str], asked: int, workers: int) -> str:
    parts = []
    if errors:
        name = min(errors)
        parts.append(f"{len(errors)} of {asked} engines without metrics: {name}: {errors[name]}")
    if workers > asked:
        parts.append(f"only {asked} of {workers} workers are asked")
    return "; ".join(parts)
