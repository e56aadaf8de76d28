"""Clients in the cluster that count a fleet's tokens while something happens to it."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.findings import rounded
from dev.shell import Shell
from dev.steps import StepFailed

BEFORE_S = 16.0
AFTER_S = 6.0
_WARM_S = 4.0
"""Until every client has its first answers; not counted."""
_END_S = 300
_BUCKET_S = 0.5
Roll = Callable[[], tuple[float, float]]
"""Makes a rollout, or what is compared with one; returns when that began and ended."""


@dataclass(frozen=True, slots=True)
class Load:
    """The tokens that clients got before, through and after one rollout."""

    times: list[float]
    """When each token arrived."""
    requests: dict[str, int]
    begun: float
    ended: float

    @property
    def before(self) -> float:
        """Tokens per second before the rollout."""
        return self._count(self.begun - BEFORE_S, self.begun) / BEFORE_S

    @property
    def seconds(self) -> float:
        """How long the rollout took."""
        return self.ended - self.begun

    @property
    def through(self) -> float:
        """Tokens per second through the rollout."""
        return self._count(self.begun, self.ended) / self.seconds

    @property
    def ratio(self) -> float:
        """Tokens per second through the rollout, over those before it."""
        return self.through / self.before

    @property
    def lost_s(self) -> float:
        """How many seconds' worth of tokens the rollout cost, until shortly after its end."""
        span = self.seconds + AFTER_S
        return span - self._count(self.begun, self.begun + span) / self.before

    @property
    def failed(self) -> int:
        """How many requests were not answered to their end."""
        return sum(self.requests.values()) - self.requests.get("answered", 0)

    def line(self) -> list[tuple[float, float]]:
        """Return tokens per second over time, in seconds from the patch."""
        count = int((BEFORE_S + self.seconds + AFTER_S) / _BUCKET_S)
        starts = [self.begun - BEFORE_S + place * _BUCKET_S for place in range(count)]
        return [
            (round(at - self.begun, 1), rounded(self._count(at, at + _BUCKET_S) / _BUCKET_S))
            for at in starts
        ]

    def _count(self, since: float, until: float) -> int:
        return sum(since <= at < until for at in self.times)


def under_load(shell: Shell, service: str, model: str, roll: Roll) -> Load:
    """Count tokens while ``roll`` makes a rollout; it returns when that began and ended."""
    url = f"http://{service}:8000"
    clients = shell.start("exec", "-i", "client", "--", "python3", "/demo/load.py", url, model)
    try:
        time.sleep(_WARM_S + BEFORE_S)
        begun, ended = roll()
        time.sleep(AFTER_S)
        reply, _ = clients.communicate(input="", timeout=_END_S)
    finally:
        clients.kill()
    counted: dict[str, Any] = json.loads(reply.strip().splitlines()[-1])
    load = Load(counted["times"], counted["requests"], begun, ended)
    if load.before <= 0:
        raise StepFailed(f"no token came before the rollout: {counted['requests']}")
    return load


def pooled(found: list[Load]) -> float:
    """Return the ratio of all the tokens together: few seconds have few bursts of them."""
    through = sum(one.through * one.seconds for one in found) / sum(one.seconds for one in found)
    return through / (sum(one.before for one in found) / len(found))


def row(column: str, name: str, found: list[Load]) -> dict[str, Any]:
    """Return a table's row about what was measured several times."""
    return {
        column: name,
        "tokens/s before": rounded(median(load.before for load in found)),
        "through it, of that": ", ".join(f"{load.ratio:.2f}" for load in found),
        "seconds": ", ".join(f"{load.seconds:.1f}" for load in found),
        "seconds lost": ", ".join(f"{load.lost_s:.1f}" for load in found),
        "requests lost": sum(load.failed for load in found),
    }
