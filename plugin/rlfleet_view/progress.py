"""How far a rollout is: bytes prepared, workers proved."""

from dataclasses import dataclass

from rlfleet_view.fleet import CopiesRow, ObservedFleet, RolloutRow

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class PartDone:
    """A part of a whole, with its description."""

    done: float
    text: str


def prepared(rollout: RolloutRow) -> PartDone | None:
    """Return which part of the version's bytes the workers have; None if it is not known."""
    if rollout.copies is not None:
        return PartDone(rollout.copies.percent / 100, copied(rollout.copies))
    if rollout.prepared_bytes is not None:
        return PartDone(1.0, f"{size(rollout.prepared_bytes)} per worker")
    return None


def copied(copies: CopiesRow) -> str:
    """Return how far copies are, in words: 20% of 4.0 GiB, 256.0 MiB/s, 12 s left."""
    text = f"{copies.percent}% of {size(copies.total_bytes)}"
    if copies.bytes_per_second is None:
        return text
    return f"{text}, {size(copies.bytes_per_second)}/s, {copies.seconds_left or 0} s left"


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
    """Return a number of bytes in words: 2.0 GiB."""
    unit = min(max(int(nbytes).bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    return f"{nbytes / 1024**unit:.{min(unit, 1)}f} {_UNITS[unit]}"
