"""How far a rollout is: bytes prepared, workers proved."""

import re
from dataclasses import dataclass

from rlfleet_view.fleet import ObservedFleet, RolloutRow

_COPIED = re.compile(r"(?P<percent>\d+)% of (?P<size>[\d.]+ \w+) of \S+ copied on .+ workers")
"""The operator's message while workers copy; a test compares it with the operator's own."""
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class PartDone:
    """A part of a whole, with its description."""

    done: float
    text: str


def is_copying(rollout: RolloutRow) -> bool:
    """Return whether its message is the progress of copies."""
    return _COPIED.match(rollout.message) is not None


def prepared(rollout: RolloutRow) -> PartDone | None:
    """Return which part of the version's bytes the workers have; None if it is not known."""
    found = _COPIED.match(rollout.message)
    if found:
        said = rollout.message.partition(f"{found['percent']}% of ")[2]
        rest = said.partition(" workers")[2]
        return PartDone(
            int(found["percent"]) / 100, f"{found['percent']}% of {found['size']}{rest}"
        )
    if rollout.prepared_bytes is not None:
        return PartDone(1.0, f"{size(rollout.prepared_bytes)} per worker")
    return None


def proved(fleet: ObservedFleet) -> PartDone:
    """Return how many workers proved the target."""
    count, whole = int(fleet.status.get("provedReplicas") or 0), fleet.replicas
    return PartDone(count / whole if whole else 1.0, f"{count} of {whole} workers")


def bar(share: float, width: int, *, is_ascii: bool) -> str:
    """Return a bar of characters; full only when all is done."""
    full, empty = ("#", "-") if is_ascii else ("█", "░")
    length = width if share >= 1 else min(width - 1, int(max(0.0, share) * width))
    return full * length + empty * (width - length)


def size(nbytes: float) -> str:
    """Return a number of bytes as the operator writes it: 2.0 GiB."""
    unit = min(max(int(nbytes).bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    return f"{nbytes / 1024**unit:.{min(unit, 1)}f} {_UNITS[unit]}"
