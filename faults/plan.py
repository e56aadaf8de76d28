"""A plan: one fault at one request of one workload, the input of a run, stored as YAML."""

from collections.abc import Iterable
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict


class Side(StrEnum):
    """The two components between which the fault occurs."""

    API = "api"
    """The operator and the API server."""
    SIDECAR = "sidecar"
    """The operator and a worker's sidecar."""
    ENGINE = "engine"
    """A sidecar and its engine, which shows the steps of a change."""


class Place(NamedTuple):
    """One request of a workload, by what it is about and how often that came before."""

    side: Side
    key: str
    occurrence: int
    """From 1."""


class Plan(BaseModel):
    """One run: the workload, the request that the fault strikes, and how."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workload: str
    side: Side
    key: str
    occurrence: int
    mode: str

    @property
    def place(self) -> Place:
        """Where the fault strikes."""
        return Place(self.side, self.key, self.occurrence)

    @property
    def name(self) -> str:
        """The plan in one word, for lines and file names."""
        key = self.key.replace(" ", "-").replace("/", ".")
        return f"{self.workload}~{key}~{self.occurrence}~{self.mode}"

    @property
    def shuffled(self) -> str:
        """A place in an order that has nothing to do with the name, the same on each day."""
        return sha256(self.name.encode()).hexdigest()

    def write(self, folder: Path) -> Path:
        """Write it as YAML; return the file."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.yaml"
        path.write_text(yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False))
        return path

    @classmethod
    def read(cls, path: Path) -> "Plan":
        """Read a plan's file; raises pydantic.ValidationError when it is none."""
        return cls.model_validate(yaml.safe_load(path.read_text()))


def spread(plans: Iterable[Plan], count: int) -> list[Plan]:
    """Choose ``count`` plans, the same each time, spread over workloads and modes."""
    groups: dict[tuple[str, str], list[Plan]] = {}
    for plan in sorted(plans, key=lambda plan: plan.shuffled):
        groups.setdefault((plan.mode, plan.workload), []).append(plan)
    order = sorted(groups.values(), key=lambda group: group[0].shuffled)
    rounds = max(map(len, order), default=0)
    dealt = [group[turn] for turn in range(rounds) for group in order if turn < len(group)]
    return sorted(_evenly(dealt, count), key=lambda plan: plan.name)


def _evenly(dealt: list[Plan], count: int) -> list[Plan]:
    """Take plans so that each mode, then each workload, comes as often as any other."""
    chosen: list[Plan] = []
    left = list(dealt)
    modes: dict[str, int] = {}
    workloads: dict[str, int] = {}
    while left and len(chosen) < count:
        best = min(left, key=lambda p: (modes.get(p.mode, 0), workloads.get(p.workload, 0)))
        left.remove(best)
        chosen.append(best)
        modes[best.mode] = modes.get(best.mode, 0) + 1
        workloads[best.workload] = workloads.get(best.workload, 0) + 1
    return chosen
