"""Which published versions are not needed. Pure.

It must stay true that whatever is unneeded can be deleted, in any order and in part, and each
needed version can still be loaded by a worker that has nothing but the base model: a delta needs
the versions down to the next whole one below it, or all down to the base model.
"""

from collections.abc import Callable, Collection, Iterable

from rlfleet_contract.version_order import number_of
from rlfleet_sidecar.deltas.formats.names import series_of

_LONGEST = 256
"""Deltas of a chain that are looked at; a longer one needs everything below it."""


def unneeded(
    stored: Iterable[str],
    needed: Collection[str],
    keep: int,
    is_whole: Callable[[str], bool],
) -> tuple[str, ...]:
    """Return the versions that are not needed, the oldest first.

    Only versions of the same kind as a needed one count: with the same text before the number,
    and a lower number than the newest that is needed.

    Args:
        stored: All versions in the store, complete or not.
        needed: Those that a worker serves or may go to.
        keep: How many of the newest of each kind count as needed too.
        is_whole: Whether a version can be loaded without others; asked for names of deltas.

    """
    found: list[tuple[int, str]] = []
    kinds = _by_kind(stored)
    for kind, numbers in _by_kind(needed).items():
        group = kinds.get(kind, [])
        ends = {number for number, _ in numbers} | {number for number, _ in group[-keep:] if keep}
        spans = [(_start(number, group, is_whole), number) for number in sorted(ends)]
        newest = max(number for number, _ in numbers)
        found += [
            (number, version)
            for number, version in group
            if number < newest and not any(first <= number <= last for first, last in spans)
        ]
    return tuple(version for _, version in sorted(found))


def next_above(version: str, others: Iterable[str]) -> str | None:
    """Return the version of the same kind with the next higher number; None without one."""
    number, kind = number_of(version), _kind(version)
    higher = [
        (found, other)
        for other in others
        if _kind(other) == kind
        and number is not None
        and (found := number_of(other)) is not None
        and found > number
    ]
    return min(higher)[1] if higher else None


def _kind(version: str) -> str:
    return version.rstrip("0123456789")


def _by_kind(versions: Iterable[str]) -> dict[str, list[tuple[int, str]]]:
    """Return versions by the text before their number, in the order of their numbers."""
    kinds: dict[str, list[tuple[int, str]]] = {}
    for version in versions:
        number = number_of(version)
        if number is not None:
            kinds.setdefault(_kind(version), []).append((number, version))
    return {kind: sorted(group) for kind, group in kinds.items()}


def _start(number: int, group: list[tuple[int, str]], is_whole: Callable[[str], bool]) -> int:
    """Return the number of the version that a worker would build this one from."""
    below = [one for one in reversed(group) if one[0] <= number]
    for place, (found, version) in enumerate(below):
        if series_of(version) is None:
            # Of no series: each version is whole.
            return number
        if place == _LONGEST:
            break
        if is_whole(version):
            return found
    return 0
