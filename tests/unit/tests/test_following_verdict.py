"""That a run which is not as it must be fails, and that the summary has its figures."""

import dataclasses
from typing import Any

import pytest

from tests.e2e.following import matching, verdict
from tests.e2e.following.timeline import Disk, Look
from tests.e2e.following.verdict import Seen
from tests.unit.tests.test_following_matching import OURS, REFERENCE, THEIRS, record
from tests.unit.tests.test_following_timeline import name, versions

ONE, TWO = name(1), name(2)


def compared(*records: dict[str, Any]) -> list[matching.Match]:
    spans = [span for one in records for span in matching.spans(one)]
    reference = {ONE: REFERENCE["a"], TWO: REFERENCE["b"]}
    return matching.matches(spans, matching.samples(spans), reference)


FIRST = record(spans=[[ONE, 0, 6]])
SECOND = record(logprobs=THEIRS, spans=[[TWO, 0, 6]])
GOOD = Seen(
    steps=2,
    every_s=20,
    keep=5,
    published=versions(10, 30),
    looks=[
        Look(0, "base", ("base", "base"), 0),
        Look(14, ONE, (ONE, ONE), 0),
        Look(32, "", (TWO, ONE), 0),
        Look(36, TWO, (TWO, TWO), 1),
    ],
    records=[FIRST, SECOND],
    matches=compared(FIRST, SECOND),
    reloaded_apart=0.0,
    caches={"learner-0": [Disk(20, 1000, 2)], "learner-1": [Disk(20, 2000, 2)]},
    bucket=[Disk(20, 500, 1), Disk(40, 600, 2)],
    is_undisturbed=True,
)
LARGE = verdict.cache_bound(GOOD) + 1
FULL = verdict.bucket_bound(GOOD)


def test_a_run_as_it_must_be_breaks_nothing() -> None:
    assert verdict.violations(GOOD) == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"steps": 3}, "2 of 3 steps were published"),
        ({"is_undisturbed": False}, "was replaced"),
        ({"looks": GOOD.looks[:3]}, "was not served"),
        ({"looks": [GOOD.looks[0], GOOD.looks[3]]}, "not taken up"),
        ({"looks": [*GOOD.looks, GOOD.looks[1]]}, "went back"),
        ({"records": []}, "no request"),
        ({"records": [FIRST, {"error": "ReadError", "sent": 0, "ended": 1}]}, "1 requests were"),
        ({"matches": compared(FIRST, SECOND | {"logprobs": OURS})}, "do not match"),
        ({"matches": compared(FIRST)}, f"no reply names {TWO}"),
        ({"reloaded_apart": 0.5}, "by a boot"),
        ({"reloaded_apart": float("nan")}, "by a boot"),
        ({"caches": {"learner-0": [Disk(20, LARGE, 2)]}}, "the cache of learner-0 had"),
        ({"caches": {"learner-0": []}}, "was not measured"),
        ({"bucket": []}, "bucket was not measured"),
        ({"bucket": [Disk(20, 500, FULL[0] + 1)]}, "versions, more than"),
        ({"bucket": [Disk(20, FULL[1] + 1, 2)]}, "bytes, more than"),
    ],
)
def test_what_must_not_be_is_seen(fields: dict[str, Any], expected: str) -> None:
    found = verdict.violations(dataclasses.replace(GOOD, **fields))

    assert any(expected in one for one in found), found


def test_a_bucket_from_which_nothing_is_deleted_is_too_large_in_a_long_run() -> None:
    run = dataclasses.replace(GOOD, published=versions(*range(0, 2000, 20)))
    entries, nbytes = verdict.bucket_bound(run)

    assert entries < len(run.published)
    assert nbytes == entries * (10 + 128 * 1024)


def test_the_summary_counts_and_is_printed() -> None:
    found = verdict.summary(GOOD)

    assert (found["published"], found["served"], found["overtaken"]) == (2, 2, [])
    assert (found["served_after_median_s"], found["served_after_longest_s"]) == (4.0, 6.0)
    assert (found["requests"], found["lost"], found["of_two_versions"]) == (2, 0, 0)
    assert (found["compared"], found["matched"], found["own_furthest"]) == (2, 2, 0.0)
    assert found["other_nearest"] == pytest.approx(0.7 / 6)
    assert (found["bucket_versions"], found["deleted"], found["violations"]) == (2, 1, [])
    assert "2 requests, 0 lost" in "\n".join(verdict.lines(found))


def test_a_run_that_saw_nothing_has_a_summary_too() -> None:
    empty: dict[str, Any] = {
        "published": {},
        "looks": [],
        "records": [],
        "matches": [],
        "bucket": [],
    }
    found = verdict.summary(dataclasses.replace(GOOD, **empty))

    assert found["violations"]
    assert list(verdict.lines(found))
