"""A fleet as `kubectl get -o json` returns it, with names for what the commands read.

Fields may be absent: the operator may be of another release, or may not have seen the fleet yet.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

RawObject = dict[str, Any]
NO_SOURCE = "not set"
"""Where the target of a fleet without one comes from."""


@dataclass(frozen=True, slots=True)
class ConditionRow:
    """One condition of a fleet."""

    type: str
    status: str
    reason: str
    message: str
    generation: int

    @property
    def is_true(self) -> bool:
        """Whether the condition holds."""
        return self.status == "True"


@dataclass(frozen=True, slots=True)
class CopiesRow:
    """How far the workers' copies of a version are."""

    percent: int
    total_bytes: int
    bytes_per_second: int | None
    seconds_left: int | None
    workers: int

    @classmethod
    def of(cls, raw: RawObject) -> Self:
        """Return it from `status.rollout.copies`."""
        return cls(
            percent=raw["percent"],
            total_bytes=raw["totalBytes"],
            bytes_per_second=raw.get("bytesPerSecond"),
            seconds_left=raw.get("secondsLeft"),
            workers=raw["workers"],
        )


@dataclass(frozen=True, slots=True)
class RolloutRow:
    """The newest rollout, or one of the history."""

    id: int
    reason: str
    before: str
    to: str
    phase: str
    message: str
    started_at: str
    seconds: float | None
    window_ms: int | None
    """The median of the workers."""
    window_max_ms: int | None
    """The longest; the history does not have it."""
    prepared_bytes: int | None
    copies: CopiesRow | None
    """Copies under way; an operator before 0.3 does not write them."""

    @classmethod
    def of(cls, raw: RawObject) -> Self:
        """Return it from `status.rollout` or an item of `status.history`."""
        window = (raw.get("timings") or {}).get("window") or {}
        return cls(
            id=raw["id"],
            reason=raw.get("reason", "Spec"),
            before=raw.get("from", ""),
            to=raw["to"],
            phase=raw.get("phase") or raw.get("result", ""),
            message=raw.get("message", ""),
            started_at=raw["startedAt"],
            seconds=raw.get("seconds"),
            window_ms=raw.get("windowMs", window.get("medianMs")),
            window_max_ms=window.get("maxMs"),
            prepared_bytes=raw.get("preparedBytes"),
            copies=CopiesRow.of(raw["copies"]) if raw.get("copies") else None,
        )

    @property
    def is_under_way(self) -> bool:
        """Whether it has not ended."""
        return self.phase not in ENDS


ENDS = frozenset({"Completed", "RolledBack", "Failed", "Held", "Superseded"})
"""Phases of a rollout that are over."""


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One worker."""

    name: str
    phase: str
    version: str
    layers: tuple[str, ...]
    is_ready: bool
    window_ms: int | None
    load_exits: int | None
    adapters: tuple[str, ...]
    message: str

    @classmethod
    def of(cls, raw: RawObject) -> Self:
        """Return it from an item of `status.workers`."""
        return cls(
            name=raw["name"],
            phase=raw["phase"],
            version=raw.get("version") or "",
            layers=tuple(raw.get("verifiedBy") or ()),
            is_ready=raw.get("ready", False),
            window_ms=raw.get("windowMs"),
            load_exits=raw.get("loadExits"),
            adapters=tuple(raw.get("adapters") or ()),
            message=raw.get("message") or "",
        )


@dataclass(frozen=True, slots=True)
class ObservedFleet:
    """One RLInferenceFleet."""

    raw: RawObject

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.raw["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return str(self.raw["metadata"].get("namespace", ""))

    @property
    def generation(self) -> int:
        """Number of the spec: each change of the spec has another."""
        return int(self.raw["metadata"].get("generation", 0))

    @property
    def deleted_at(self) -> str:
        """When its deletion was requested; empty if it was not."""
        return str(self.raw["metadata"].get("deletionTimestamp") or "")

    @property
    def finalizers(self) -> str:
        """What keeps it while it is deleted, as a list of names."""
        return ", ".join(self.raw["metadata"].get("finalizers") or ()) or "none"

    @property
    def spec(self) -> RawObject:
        """Its spec."""
        return dict(self.raw.get("spec") or {})

    @property
    def status(self) -> RawObject:
        """Its status, empty before the operator has seen it."""
        return dict(self.raw.get("status") or {})

    def spec_at(self, path: str) -> Any:
        """Return the value of a dotted path below spec; None if there is none."""
        found: Any = self.spec
        for part in path.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        return found

    @property
    def is_observed(self) -> bool:
        """Whether the status is about this spec."""
        return int(self.status.get("observedGeneration", -1)) >= self.generation

    @property
    def target(self) -> str:
        """The version that the workers must serve, as the operator read it."""
        return str(self.status.get("target") or "")

    @property
    def asked(self) -> str:
        """The target, or what the spec names as long as the operator has not read it."""
        return self.target or str(self.spec.get("weightVersion") or "")

    @property
    def source(self) -> str:
        """Where the target comes from."""
        if self.spec.get("weightVersion"):
            return "spec.weightVersion"
        if self.spec_at("weights.follow") == "Latest":
            return "follows the store"
        return "set by a trainer" if self.status.get("trainerTarget") else NO_SOURCE

    @property
    def serving(self) -> str:
        """The version that all workers with traffic proved."""
        return str(self.status.get("serving") or "")

    @property
    def replicas(self) -> int:
        """Number of workers that the spec requests."""
        return int(self.spec.get("replicas", 1))

    @property
    def conditions(self) -> tuple[ConditionRow, ...]:
        """All conditions, also those about an earlier spec."""
        return tuple(
            ConditionRow(
                type=one["type"],
                status=one["status"],
                reason=one.get("reason", ""),
                message=one.get("message", ""),
                generation=int(one.get("observedGeneration", 0)),
            )
            for one in self.status.get("conditions") or ()
        )

    def condition(self, kind: str) -> ConditionRow | None:
        """Return a condition about this spec."""
        found = (c for c in self.conditions if c.type == kind and c.generation >= self.generation)
        return next(found, None)

    def is_true(self, kind: str) -> bool:
        """Return whether a condition about this spec holds."""
        found = self.condition(kind)
        return found is not None and found.is_true

    @property
    def rollout(self) -> RolloutRow | None:
        """The newest rollout."""
        raw = self.status.get("rollout")
        return RolloutRow.of(raw) if raw else None

    @property
    def rollouts(self) -> tuple[RolloutRow, ...]:
        """All recorded rollouts, the newest first, each once."""
        newest = [self.rollout] if self.rollout else []
        past = [RolloutRow.of(raw) for raw in self.status.get("history") or ()]
        return (*newest, *(p for p in past if not newest or p.id != newest[0].id))

    @property
    def workers(self) -> tuple[WorkerRow, ...]:
        """The listed workers by name; status may leave some out."""
        rows = [WorkerRow.of(raw) for raw in self.status.get("workers") or ()]
        return tuple(sorted(rows, key=_ordinal))

    @property
    def left_out(self) -> int:
        """Number of workers that status leaves out."""
        return int(self.status.get("workersTruncated") or 0)


def _ordinal(row: WorkerRow) -> tuple[int, str]:
    last = row.name.rpartition("-")[2]
    return (int(last) if last.isdigit() else -1, row.name)


def moment(written: str) -> datetime:
    """Return the time that Kubernetes or a log line wrote."""
    read = datetime.fromisoformat(written)
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def age(seconds: float) -> str:
    """Return a duration as kubectl writes it: 45s, 12m, 3h, 9d."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"
