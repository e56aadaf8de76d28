"""What the engines compute and how old their weights are: the rows of `top`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rich.table import Table
from rich.text import Text

from rlfleet_kubectl.core.tables import plain_table
from rlfleet_kubectl.core.tree import style_of
from rlfleet_view.fleet import ObservedFleet, WorkerRow, age
from rlfleet_view.samples import MetricSample

_GENERATED, _PROMPTS = "vllm:generation_tokens_total", "vllm:prompt_tokens_total"
_RUNNING, _WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
_CACHE = "vllm:kv_cache_usage_perc"
_NUMBER = re.compile(r"(\d+)$")
_NO_VALUE = "-"
_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True)
class EngineReading:
    """The metrics of one engine at one moment."""

    at: float
    samples: Sequence[MetricSample]

    def total(self, name: str) -> float | None:
        """Return the sum of a metric over an engine's parts; None without it."""
        found = [one.value for one in self.samples if one.name == name]
        return sum(found) if found else None

    def largest(self, name: str) -> float | None:
        """Return the largest value of a metric; None without it."""
        return max((one.value for one in self.samples if one.name == name), default=None)


@dataclass(frozen=True, slots=True)
class LoadRow:
    """What a worker, or a whole fleet, does now; None is what is not known."""

    name: str
    phase: str
    version: str
    behind: int | None
    """Steps behind the target."""
    generated: float | None
    """Tokens a second."""
    prompts: float | None
    """Prompt tokens a second."""
    running: float | None
    waiting: float | None
    cache: float | None
    """Part of the KV cache that is used."""
    window_ms: int | None


@dataclass(frozen=True, slots=True)
class Staleness:
    """What the leading operator measures about a fleet; None is what it does not export."""

    skew: float | None
    """Steps between the newest and the oldest version in traffic."""
    target_s: float | None
    """Seconds since the rollout to the target began."""
    serving_s: float | None
    """Seconds since all workers serve the version."""
    changes: float | None
    """Changes of single workers that the leader has seen."""
    mean_window_ms: float | None


@dataclass(frozen=True, slots=True)
class FleetLoad:
    """A fleet: all of it, then each worker."""

    row: LoadRow
    workers: tuple[LoadRow, ...]
    target: str
    staleness: Staleness | None
    """None without the operator's metrics."""


Readings = Mapping[str, tuple[EngineReading, EngineReading]]
"""Two readings of each engine that answered, by pod."""


def of_fleet(
    fleet: ObservedFleet, readings: Readings, operator: Sequence[MetricSample] | None, now: float
) -> FleetLoad:
    """Return what a fleet does; ``operator`` are the leader's metrics, ``now`` epoch seconds."""
    workers = tuple(_of_worker(one, readings.get(one.name), fleet) for one in fleet.workers)
    stale = None if operator is None else staleness(fleet, operator, now)
    return FleetLoad(_of_all(fleet, workers), workers, fleet.target, stale)


def staleness(fleet: ObservedFleet, operator: Sequence[MetricSample], now: float) -> Staleness:
    """Return how old the served weights are, from the metrics of all operators."""
    mine = [
        one
        for one in operator
        if (one.labels.get("namespace"), one.labels.get("fleet")) == (fleet.namespace, fleet.name)
    ]

    def value(name: str, use: str | None = None) -> float | None:
        found = (o.value for o in mine if o.name == name and o.labels.get("use") == use)
        return next(found, None)

    def since(use: str) -> float | None:
        at = value("rlfleet_version_timestamp_seconds", use)
        return None if at is None else max(0.0, now - at)

    count, total = value("rlfleet_window_seconds_count"), value("rlfleet_window_seconds_sum")
    mean = None if not count or total is None else 1000 * total / count
    skew = value("rlfleet_version_skew")
    return Staleness(skew, since("target"), since("serving"), count, mean)


def _of_worker(
    row: WorkerRow, read: tuple[EngineReading, EngineReading] | None, fleet: ObservedFleet
) -> LoadRow:
    newest = read[1] if read else None
    return LoadRow(
        name=row.name,
        phase=row.phase,
        version=row.version,
        behind=behind(row.version, fleet.target),
        generated=_rate(read, _GENERATED),
        prompts=_rate(read, _PROMPTS),
        running=newest.total(_RUNNING) if newest else None,
        waiting=newest.total(_WAITING) if newest else None,
        cache=newest.largest(_CACHE) if newest else None,
        window_ms=row.window_ms,
    )


def _of_all(fleet: ObservedFleet, workers: Sequence[LoadRow]) -> LoadRow:
    is_mixed = len({one.version for one in workers}) > 1
    return LoadRow(
        name=fleet.name,
        phase=f"{fleet.status.get('readyReplicas') or 0}/{fleet.replicas} ready",
        version=fleet.serving or ("several" if is_mixed else ""),
        behind=max(_known(one.behind for one in workers), default=None),
        generated=_sum(one.generated for one in workers),
        prompts=_sum(one.prompts for one in workers),
        running=_sum(one.running for one in workers),
        waiting=_sum(one.waiting for one in workers),
        cache=max(_known(one.cache for one in workers), default=None),
        window_ms=max(_known(one.window_ms for one in workers), default=None),
    )


def _known(values: Iterable[_Number | None]) -> list[_Number]:
    return [one for one in values if one is not None]


def _sum(values: Iterable[float | None]) -> float | None:
    known = _known(values)
    return sum(known) if known else None


def _rate(read: tuple[EngineReading, EngineReading] | None, name: str) -> float | None:
    """Return how fast a counter grows; None if its engine restarted between the readings."""
    if read is None:
        return None
    before, after = read[0].total(name), read[1].total(name)
    seconds = read[1].at - read[0].at
    if before is None or after is None or after < before or seconds <= 0:
        return None
    return (after - before) / seconds


def behind(version: str, target: str) -> int | None:
    """Return how many steps a version is behind the target, by the numbers that end their names."""
    numbers = [_NUMBER.search(one) for one in (version, target)]
    if version and version == target:
        return 0
    if numbers[0] is None or numbers[1] is None:
        return None
    return int(numbers[1][1]) - int(numbers[0][1])


def drawn(found: Sequence[FleetLoad]) -> Table:
    """Return the table: of each fleet its own line, then its workers."""
    table = plain_table(
        "NAME", "PHASE", "VERSION", "BEHIND", "TOKENS/S", "PROMPT/S", "RUNNING", "WAITING",
        "KV CACHE", "WINDOW",
    )  # fmt: skip
    for one in found:
        _add(table, one.row, Text(one.row.name, "bold"))
        for row in one.workers:
            _add(table, row, Text(f"  {row.name}"))
    return table


def note(one: FleetLoad) -> str:
    """Return how old the served weights are, in one line; empty if nothing is known."""
    stale = one.staleness
    if stale is None or stale.target_s is None:
        return ""
    said = [f"target {one.target} for {age(stale.target_s)}"]
    if stale.serving_s is not None:
        said.append(f"serving {one.row.version} for {age(stale.serving_s)}")
    if stale.skew is not None:
        said.append(f"skew {stale.skew:.0f}")
    if stale.mean_window_ms is not None:
        said.append(f"window {stale.mean_window_ms:.0f} ms on average of {stale.changes:.0f}")
    return f"{one.row.name}: {', '.join(said)}"


def _add(table: Table, row: LoadRow, name: Text) -> None:
    table.add_row(
        name,
        Text(row.phase, style_of(row.phase) if name.plain.startswith(" ") else ""),
        row.version or _NO_VALUE,
        _of(row.behind),
        _of(row.generated, ".1f"),
        _of(row.prompts, ".1f"),
        _of(row.running),
        _of(row.waiting),
        _of(row.cache, ".0%"),
        _NO_VALUE if row.window_ms is None else f"{row.window_ms} ms",
    )


def _of(value: float | None, form: str = ".0f") -> str:
    return _NO_VALUE if value is None else format(value, form)
