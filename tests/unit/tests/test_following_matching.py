"""That a reply of another version than it names is seen, and a right one is not blamed."""

from typing import Any

import pytest

from tests.e2e.following import matching
from tests.e2e.following.matching import BOUND, Span

OURS = [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0]
THEIRS = [-1.1, -2.0, -3.2, -4.1, -5.0, -6.3]
REFERENCE = {"a": [OURS], "b": [THEIRS]}
TOKENS = [7, 8, 9, 10, 11, 12]


def record(**fields: Any) -> dict[str, Any]:
    """A good reply of version a."""
    good = {"prompt": 0, "wanted": 6, "sent": 0.0, "ended": 0.5, "finish": "length"}
    return good | {"tokens": TOKENS, "logprobs": OURS, "spans": [["a", 0, 6]]} | fields


def match(**fields: Any) -> list[matching.Match]:
    spans = list(matching.spans(record(**fields)))
    return matching.matches(spans, matching.samples(spans), REFERENCE)


def test_a_reply_of_the_version_that_it_names_matches() -> None:
    (one,) = match()

    assert (one.own, one.rival, one.is_wrong) == (0.0, "b", False)
    assert one.other == pytest.approx(0.7 / 6)


@pytest.mark.parametrize(
    "fields",
    [
        {"spans": [["b", 0, 6]]},
        {"logprobs": THEIRS},
        {"spans": [["unknown", 0, 6]]},
        {"logprobs": [one - 3 * BOUND for one in OURS]},
        {"spans": [["b", 0, 2], ["a", 2, 6]]},
        {"spans": [["a", 0, 2], ["b", 2, 6]]},
    ],
    ids=["another's name", "another's values", "no version", "too far", "a head", "a tail"],
)
def test_what_the_named_version_does_not_give_is_wrong(fields: dict[str, Any]) -> None:
    assert [one.is_wrong for one in match(**fields)].count(True) == 1


def test_a_reply_of_two_versions_is_compared_part_by_part() -> None:
    parts = match(logprobs=OURS[:2] + THEIRS[2:], spans=[["a", 0, 2], ["b", 2, 6]])

    assert [(one.own, one.rival, one.is_wrong) for one in parts] == [
        (0.0, "b", False),
        (0.0, "a", False),
    ]


def test_a_short_part_need_not_differ_from_other_versions_but_must_be_near_its_own() -> None:
    same, far = match(spans=[["a", 0, 1], ["b", 1, 2], ["a", 2, 6]])[1:], match()
    (short,) = match(tokens=[7], logprobs=[-1.0 + 3 * BOUND], spans=[["a", 0, 1]])

    assert same[0].own == same[0].other == 0.0
    assert not same[0].is_wrong
    assert not far[0].is_wrong
    assert short.is_wrong


def test_a_long_part_that_fits_two_versions_is_wrong() -> None:
    spans = list(matching.spans(record()))

    (one,) = matching.matches(spans, matching.samples(spans), {"a": [OURS], "b": [OURS]})

    assert one.is_near
    assert one.is_wrong


def test_noise_below_the_bound_is_no_other_version() -> None:
    (one,) = match(logprobs=[value + BOUND / 2 for value in OURS])

    assert not one.is_wrong


@pytest.mark.parametrize(
    "fields",
    [
        {"error": "ReadError"},
        {"finish": "abort"},
        {"wanted": 7},
        {"spans": [["a", 0, 3]]},
        {"spans": [["a", 0, 3], ["b", 4, 6]]},
        {"spans": []},
        {"logprobs": OURS[:5]},
    ],
)
def test_an_answer_that_lacks_anything_is_lost(fields: dict[str, Any]) -> None:
    assert matching.is_whole(record())
    assert not matching.is_whole(record(**fields))


def test_an_empty_part_is_not_compared() -> None:
    assert len(list(matching.spans(record(spans=[["a", 0, 0], ["b", 0, 6]])))) == 1


def test_equal_replies_are_computed_once() -> None:
    spans = [Span((0, (1, 2)), "a", 0, 2, (-1.0, -2.0))] * 3 + [Span((1, (1, 2)), "a", 0, 2, ())]

    assert matching.samples(spans) == [(0, (1, 2)), (1, (1, 2))]
