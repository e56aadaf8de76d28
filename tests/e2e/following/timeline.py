"""When versions were published and served, read from the lines of trainer and kubectl. Pure."""

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Line = tuple[float, str]
"""A line of a command's output, and when it came."""
STATUS = (
    'jsonpath={.status.serving}|{.status.workers[*].version}|{.status.retention.deleted}{"\\n"}'
)
"""How kubectl prints a look at the fleet."""
_FIELDS = STATUS.count("|") + 1
FREE_S = 10.0
"""A fleet that is free takes up a new version within this: a look each 3 s, and the news of it."""
_PUBLISHED = re.compile(r"(weight_v\d+) (full|delta) (\d+) of (\d+) bytes")
_DISK = re.compile(r"(\d+) (\d+)")


@dataclass(frozen=True, slots=True)
class Published:
    """A version that the trainer has published."""

    version: str
    at: float
    is_full: bool
    nbytes: int
    total_nbytes: int


@dataclass(frozen=True, slots=True)
class Look:
    """The fleet's status at a moment."""

    at: float
    serving: str
    workers: tuple[str, ...]
    """What each has proved."""
    deleted: int

    @property
    def served(self) -> str:
        """The version that each worker has proved, and those with traffic serve; empty if none."""
        return self.serving if {self.serving} == set(self.workers) else ""


@dataclass(frozen=True, slots=True)
class Disk:
    """What a directory holds at a moment."""

    at: float
    nbytes: int
    entries: int


def published(lines: Iterable[Line]) -> dict[str, Published]:
    """Return the versions in the trainer's log; a log that is read again repeats them."""
    found: dict[str, Published] = {}
    for at, line in lines:
        if match := _PUBLISHED.fullmatch(line.strip()):
            name, kind, nbytes, total = match.groups()
            found.setdefault(name, Published(name, at, kind == "full", int(nbytes), int(total)))
    return found


def looks(lines: Iterable[Line]) -> list[Look]:
    """Return the looks at the status; other lines are kubectl's."""
    found = []
    for at, line in lines:
        fields = line.strip().split("|")
        if len(fields) == _FIELDS:
            serving, workers, deleted = fields
            found.append(Look(at, serving, tuple(workers.split()), int(deleted or 0)))
    return found


def disks(lines: Iterable[Line]) -> list[Disk]:
    """Return the sizes of a directory; lines are KIBIBYTES ENTRIES."""
    matches = ((at, _DISK.fullmatch(line.strip())) for at, line in lines)
    return [Disk(at, int(m[1]) * 1024, int(m[2])) for at, m in matches if m]


def served(seen: Iterable[Look], versions: Mapping[str, Published]) -> dict[str, float]:
    """Return when each published version was first served by every worker."""
    found: dict[str, float] = {}
    for look in seen:
        if look.served in versions:
            found.setdefault(look.served, look.at)
    return found


def delays(versions: Mapping[str, Published], since: Mapping[str, float]) -> list[float]:
    """Return the seconds from published to served, in order of size."""
    return sorted(max(0.0, at - versions[version].at) for version, at in since.items())


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """Return the value that this share of all does not exceed; None of nothing."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def overtaken(versions: Mapping[str, Published], since: Mapping[str, float]) -> list[str]:
    """Return the versions that were never served: a newer one was."""
    return [version for version in versions if version not in since]


def neglected(versions: Mapping[str, Published], since: Mapping[str, float]) -> list[str]:
    """Return the versions that a fleet which was free did not take up.

    It may leave one out only if the next one was published before the fleet had ended the
    rollout before, or before it could take this one up.
    """
    order = sorted(versions)
    free, found = -math.inf, []
    for version, following in itertools.zip_longest(order, order[1:]):
        if version in since:
            free = since[version]
        elif following is None or versions[following].at > max(free, versions[version].at) + FREE_S:
            found.append(version)
    return found
