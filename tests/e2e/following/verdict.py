"""What a run must show, and its summary. Pure."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.e2e.following import timeline
from tests.e2e.following.matching import BOUND, Match, is_whole
from tests.e2e.following.timeline import Disk, Look, Published

ANCHOR_EVERY = 25
"""Each so many versions of the example's trainer one is full: the longest chain of deltas."""
RETAIN_S = 60.0
"""Seconds between two looks of a sidecar for versions that are not needed."""
CACHED = 4
"""Served, previous and next version, and one that is being written."""
_RECORD = 128 * 1024
"""Bytes of a version without its tensors: headers, index, records, ends of blocks."""


@dataclass(frozen=True)
class Seen:
    """What was seen of a run."""

    steps: int
    every_s: float
    keep: int
    published: Mapping[str, Published]
    looks: Sequence[Look]
    records: Sequence[Mapping[str, Any]]
    matches: Sequence[Match]
    reloaded_apart: float
    """How far the reference by a reload is from that by a boot, for the last version."""
    caches: Mapping[str, Sequence[Disk]]
    """By worker."""
    bucket: Sequence[Disk]
    is_undisturbed: bool
    """Whether no worker's pod was replaced and no container restarted."""

    @property
    def served(self) -> dict[str, float]:
        """When each version was served."""
        return timeline.served(self.looks, self.published)

    @property
    def lost(self) -> list[Mapping[str, Any]]:
        """Requests without a full answer."""
        return [record for record in self.records if not is_whole(record)]


def violations(seen: Seen) -> list[str]:
    """Say what must not be."""
    return [*_of_following(seen), *_of_requests(seen), *_of_answers(seen), *_of_disks(seen)]


def _of_following(seen: Seen) -> Iterator[str]:
    if len(seen.published) != seen.steps:
        yield f"{len(seen.published)} of {seen.steps} steps were published"
    if not seen.is_undisturbed:
        yield "a worker's pod was replaced, or a container restarted"
    since = seen.served
    if seen.published and max(seen.published) not in since:
        yield f"the last version, {max(seen.published)}, was not served"
    if left := timeline.neglected(seen.published, since):
        yield f"{len(left)} versions were not taken up by a fleet that was free: {left[0]}, …"
    back = [b.served for a, b in itertools.pairwise(_steady(seen)) if b.served < a.served]
    if back:
        yield f"the fleet went back to {back[0]}"


def _steady(seen: Seen) -> list[Look]:
    return [look for look in seen.looks if look.served in seen.published]


def _of_requests(seen: Seen) -> Iterator[str]:
    if not seen.records:
        yield "no request was sent"
    if seen.lost:
        first = seen.lost[0]
        yield f"{len(seen.lost)} requests were lost: {first.get('error', first)}"


def _of_answers(seen: Seen) -> Iterator[str]:
    if wrong := [match for match in seen.matches if match.is_wrong]:
        one = wrong[0]
        yield (
            f"{len(wrong)} parts of replies do not match the version that they name: one of"
            f" {one.span.version} is {one.own} away from it, and {one.other} from {one.rival}"
        )
    answered = {match.span.version for match in seen.matches}
    if silent := set(seen.served) - answered:
        yield f"no reply names {min(silent)}, which was served ({len(silent)} in all)"
    if not seen.reloaded_apart <= BOUND:
        yield f"the reference by a reload is {seen.reloaded_apart} from that by a boot"


def _of_disks(seen: Seen) -> Iterator[str]:
    for worker, disks in seen.caches.items():
        highest = most(disks)
        if highest is None:
            yield f"the cache of {worker} was not measured"
        elif highest > cache_bound(seen):
            yield f"the cache of {worker} had {highest} bytes, more than {cache_bound(seen)}"
    entries, nbytes = bucket_bound(seen)
    if not seen.bucket:
        yield "the bucket was not measured"
    elif max(disk.entries for disk in seen.bucket) > entries:
        yield f"the bucket had {max(d.entries for d in seen.bucket)} versions, more than {entries}"
    elif max(disk.nbytes for disk in seen.bucket) > nbytes:
        yield f"the bucket had {most(seen.bucket)} bytes, more than {nbytes}"


def most(disks: Sequence[Disk]) -> int | None:
    """Return the most bytes that were seen."""
    return max((disk.nbytes for disk in disks), default=None)


def cache_bound(seen: Seen) -> int:
    """Return the bytes that a worker's cache may have."""
    total = max((one.total_nbytes for one in seen.published.values()), default=0)
    return CACHED * (total + _RECORD)


def bucket_bound(seen: Seen) -> tuple[int, int]:
    """Return how many versions, and bytes, the bucket may have.

    Those to keep, a chain of deltas down to a full version, and what is published between
    two looks of a sidecar.
    """
    entries = seen.keep + ANCHOR_EVERY + math.ceil(2 * RETAIN_S / seen.every_s) + 1
    sizes = [seen.published[version].nbytes for version in sorted(seen.published)]
    windows = [sum(sizes[first : first + entries]) for first in range(len(sizes))]
    return entries, max(windows, default=0) + entries * _RECORD


def summary(seen: Seen) -> dict[str, Any]:
    """Return the run's figures."""
    since, wrong = seen.served, [match for match in seen.matches if match.is_wrong]
    delays = timeline.delays(seen.published, since)
    entries, nbytes = bucket_bound(seen)
    return {
        "steps": seen.steps,
        "every_s": seen.every_s,
        "published": len(seen.published),
        "full": sum(one.is_full for one in seen.published.values()),
        "served": len(since),
        "overtaken": timeline.overtaken(seen.published, since),
        "served_after_median_s": _rounded(timeline.quantile(delays, 0.5)),
        "served_after_p95_s": _rounded(timeline.quantile(delays, 0.95)),
        "served_after_longest_s": _rounded(timeline.quantile(delays, 1)),
        "requests": len(seen.records),
        "lost": len(seen.lost),
        "longest_s": _rounded(
            max((one["ended"] - one["sent"] for one in seen.records), default=None)
        ),
        "of_two_versions": sum(len(one.get("spans", ())) > 1 for one in seen.records),
        "compared": len(seen.matches),
        "matched": len(seen.matches) - len(wrong),
        "versions_in_replies": len({match.span.version for match in seen.matches}),
        **_distances(seen),
        "cache_bytes": {worker: most(disks) for worker, disks in seen.caches.items()},
        "cache_bound_bytes": cache_bound(seen),
        "bucket_bytes": most(seen.bucket),
        "bucket_bound_bytes": nbytes,
        "bucket_versions": max((disk.entries for disk in seen.bucket), default=None),
        "bucket_bound_versions": entries,
        "deleted": max((look.deleted for look in seen.looks), default=0),
        "violations": violations(seen),
    }


def _distances(seen: Seen) -> dict[str, float | None]:
    """Return how far same and other versions are from each other."""
    telling = [match for match in seen.matches if match.is_matched]
    return {
        "bound": BOUND,
        "own_furthest": max((m.own for m in seen.matches if m.own is not None), default=None),
        "other_nearest": min((m.other for m in telling), default=None),
        "reload_from_boot": seen.reloaded_apart,
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the summary's lines for a person."""
    yield (
        f"{found['published']} of {found['steps']} steps published ({found['full']} full),"
        f" {found['served']} served, {len(found['overtaken'])} overtaken by a newer one"
    )
    yield (
        f"published to served: median {found['served_after_median_s']} s,"
        f" 95 % within {found['served_after_p95_s']} s, longest {found['served_after_longest_s']} s"
    )
    yield (
        f"{found['requests']} requests, {found['lost']} lost, longest {found['longest_s']} s;"
        f" {found['of_two_versions']} replies have tokens of two versions"
    )
    yield (
        f"{found['matched']} of {found['compared']} parts of replies have the log probabilities of"
        f" the version that they name, of {found['versions_in_replies']} versions"
    )
    yield (
        f"mean difference of log probabilities: own version at most {found['own_furthest']},"
        f" nearest other version {found['other_nearest']}, bound {found['bound']}"
    )
    caches = ", ".join(f"{worker} {nbytes}" for worker, nbytes in found["cache_bytes"].items())
    yield f"bytes of the caches at most: {caches}; bound {found['cache_bound_bytes']}"
    yield (
        f"bucket at most: {found['bucket_versions']} versions, {found['bucket_bytes']} bytes; bound"
        f" {found['bucket_bound_versions']}, {found['bucket_bound_bytes']}; deleted"
        f" {found['deleted']}"
    )
